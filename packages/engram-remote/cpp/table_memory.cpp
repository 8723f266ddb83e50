#include "table_memory.hpp"

#include <array>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <string>

#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace engram {

namespace {

constexpr std::size_t kWordBits = 8 * sizeof(unsigned long);
constexpr std::uint64_t kBytesMax = std::uint64_t{1} << 60;  // more than any host has; rounding up must not wrap
using NodeMask = std::array<unsigned long, 1024 / kWordBits>;  // the most nodes that Linux can be built for

std::size_t rounded(std::uint64_t bytes) noexcept { return (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes; }

std::string gibibytes(std::uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f GiB", static_cast<double>(bytes) / static_cast<double>(std::uint64_t{1} << 30));
  return text;
}

// 0 where the kernel has no NUMA, or does not say.
int allowed_nodes(NodeMask& mask) noexcept {
  mask.fill(0);
  if (::syscall(SYS_get_mempolicy, nullptr, mask.data(), mask.size() * kWordBits, nullptr, MPOL_F_MEMS_ALLOWED) != 0)
    return 0;
  int count = 0;
  for (const unsigned long word : mask) count += __builtin_popcountl(word);
  return count;
}

std::uint64_t number_in(const char* file) {
  std::uint64_t number = 0;
  std::ifstream(file) >> number;
  return number;
}

std::uint64_t free_huge_pages() {
  return number_in("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
}

// "always", "madvise" or "never", which stands in brackets among the three; empty where the kernel has none.
std::string transparent_mode() {
  std::string line;
  std::getline(std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled"), line);
  const std::size_t begin = line.find('[');
  const std::size_t end = line.find(']');
  return begin == std::string::npos || end == std::string::npos ? "" : line.substr(begin + 1, end - begin - 1);
}

bool transparent() {
  const std::string mode = transparent_mode();
  return mode == "always" || mode == "madvise";
}

void* map_explicit(std::size_t bytes) noexcept {
  return ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | (21 << MAP_HUGE_SHIFT), -1,
                0);
}

// Mapped with room to spare, which is given back, so that the memory begins where a huge page can.
void* map_aligned(std::size_t bytes) noexcept {
  void* const mapped = ::mmap(nullptr, bytes + kHugePageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return mapped;
  const std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(mapped);
  const std::uintptr_t aligned = rounded(begin);
  std::byte* const base = static_cast<std::byte*>(mapped) + (aligned - begin);
  if (aligned != begin) ::munmap(mapped, aligned - begin);
  if (const std::size_t behind = kHugePageBytes - (aligned - begin); behind != 0) ::munmap(base + bytes, behind);
  return base;
}

Outcome explicit_failure(std::size_t bytes, int error) {
  return failure(ENGRAM_SYSTEM, std::to_string(bytes / kHugePageBytes) + " explicit huge pages of 2 MiB are needed and " +
                                    std::to_string(free_huge_pages()) + " are free (" + errno_text(error) +
                                    "): raise vm.nr_hugepages, or do without them");
}

std::string interleave(void* base, std::size_t bytes) {
  NodeMask mask;
  const int nodes = allowed_nodes(mask);
  if (nodes < 2) return ", on one NUMA node";
  if (::syscall(SYS_mbind, base, bytes, MPOL_INTERLEAVE, mask.data(), mask.size() * kWordBits, 0U) != 0)
    return ", not interleaved: " + errno_text(errno);
  return ", interleaved over " + std::to_string(nodes) + " NUMA nodes";
}

}  // namespace

Outcome allocate_table_memory(std::uint64_t bytes, bool explicit_huge, void*& base) {
  if (bytes == 0 || bytes > kBytesMax)
    return failure(ENGRAM_INVALID, "bytes of table memory must be from 1 to " + std::to_string(kBytesMax) + ", not " +
                                       std::to_string(bytes));
  const std::size_t size = rounded(bytes);
  void* const mapped = explicit_huge ? map_explicit(size) : map_aligned(size);
  if (mapped == MAP_FAILED && explicit_huge) return explicit_failure(size, errno);
  if (mapped == MAP_FAILED)
    return failure(ENGRAM_SYSTEM, gibibytes(size) + " of table memory cannot be had: " + errno_text(errno));
  std::string pages = " in explicit huge pages";
  if (!explicit_huge) {
    const bool advised = transparent() && ::madvise(mapped, size, MADV_HUGEPAGE) == 0;
    pages = advised ? " in transparent huge pages where the kernel has them" : " in pages of the usual size";
  }
  static_cast<void>(::madvise(mapped, size, MADV_DONTDUMP));  // a core of this process is not for the tables
  base = mapped;
  return {ENGRAM_OK, gibibytes(size) + pages + interleave(mapped, size)};
}

void free_table_memory(void* base, std::uint64_t bytes) noexcept {
  if (base != nullptr) ::munmap(base, rounded(bytes));
}

Outcome seal_table_memory(void* base, std::uint64_t bytes) {
  if (::mprotect(base, rounded(bytes), PROT_READ) == 0) return {};
  return failure(ENGRAM_SYSTEM, "the table memory cannot be made read-only: " + errno_text(errno));
}

Outcome huge_pages_available() {
  const std::uint64_t free = free_huge_pages();
  const std::string words = std::to_string(free) + " explicit huge pages of 2 MiB are free, transparent ones: " +
                            (transparent_mode().empty() ? "none" : transparent_mode());
  return free > 0 || transparent() ? Outcome{ENGRAM_OK, words} : failure(ENGRAM_SYSTEM, words);
}

Outcome numa_available() {
  NodeMask mask;
  const int nodes = allowed_nodes(mask);
  if (nodes >= 2) return {ENGRAM_OK, "tables are interleaved over " + std::to_string(nodes) + " nodes"};
  return failure(ENGRAM_SYSTEM, nodes == 1 ? "this process may use one NUMA node only, so there is nothing to spread over"
                                           : "the kernel tells nothing about NUMA nodes");
}

}  // namespace engram
