// Table memory is zeroed, aligned, of the size that was asked for, and read-only once it is sealed.

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <string>

#include <sys/wait.h>
#include <unistd.h>

#include "check.hpp"
#include "table_memory.hpp"

TEST(table_memory_is_zeroed_aligned_and_as_long_as_asked_for) {
  for (const std::uint64_t bytes : {std::uint64_t{1}, std::uint64_t{4096}, (std::uint64_t{2} << 20U) + 1, std::uint64_t{9} << 20U}) {
    void* base = nullptr;
    const engram::Outcome outcome = engram::allocate_table_memory(bytes, false, base);
    CHECK(outcome && !outcome.text.empty());
    CHECK(reinterpret_cast<std::uintptr_t>(base) % engram::kHugePageBytes == 0);
    auto* const memory = static_cast<std::byte*>(base);
    CHECK(memory[0] == std::byte{0} && memory[bytes - 1] == std::byte{0});
    memory[0] = memory[bytes - 1] = std::byte{7};
    engram::free_table_memory(base, bytes);
  }
}

TEST(no_memory_is_a_sentence) {
  void* base = nullptr;
  for (const std::uint64_t bytes : {std::uint64_t{0}, UINT64_MAX})  // rounded up to pages the last one would be none
    CHECK(engram::allocate_table_memory(bytes, false, base).status == ENGRAM_INVALID);
  const engram::Outcome outcome = engram::allocate_table_memory(std::uint64_t{1} << 50U, false, base);
  CHECK(outcome.status == ENGRAM_SYSTEM && outcome.text.find("1048576.00 GiB") == 0);
}

TEST(a_write_to_sealed_memory_ends_the_process) {
  void* base = nullptr;
  CHECK(engram::allocate_table_memory(4096, false, base));
  static_cast<volatile std::byte*>(base)[5] = std::byte{9};
  CHECK(engram::seal_table_memory(base, 4096));
  CHECK(static_cast<volatile std::byte*>(base)[5] == std::byte{9});
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGSEGV, SIG_DFL);  // not a sanitizer's
    static_cast<volatile std::byte*>(base)[5] = std::byte{1};
    ::_exit(0);
  }
  int status = 0;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
  engram::free_table_memory(base, 4096);
}
