#include "rdma_memlock.hpp"

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <memory>

#include <sys/resource.h>
#include <unistd.h>

#include "status.hpp"

namespace ofl {

namespace {

constexpr unsigned kCapIpcLock = 14;  // the kernel's number of CAP_IPC_LOCK

struct CloseFile {
  void operator()(std::FILE* file) const noexcept { std::fclose(file); }
};
using UniqueFile = std::unique_ptr<std::FILE, CloseFile>;

std::string bytes_text(std::uint64_t bytes) { return bytes == kUnlimited ? "unlimited" : std::to_string(bytes); }

std::string raise_text() {
  return "; raise it: `ulimit -l unlimited` in the shell (hard limit: /etc/security/limits.conf, memlock), "
         "LimitMEMLOCK=infinity in the systemd unit, `docker run --ulimit memlock=-1`";
}

}  // namespace

LockedMemory locked_memory() {
  LockedMemory locked;
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) locked.limit_bytes = limit.rlim_cur;
  const UniqueFile file(std::fopen("/proc/self/status", "re"));
  char line[256];
  while (file && std::fgets(line, sizeof line, file.get()) != nullptr) {
    std::uint64_t value = 0;
    if (std::sscanf(line, "VmPin: %" SCNu64 " kB", &value) == 1) locked.pinned_bytes = value * 1024;
    if (std::sscanf(line, "CapEff: %" SCNx64, &value) == 1) locked.exempt = ((value >> kCapIpcLock) & 1U) != 0;
  }
  return locked;
}

std::uint64_t page_bytes_at(const void* address) {
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  const UniqueFile file(std::fopen("/proc/self/smaps", "re"));
  char line[512];
  bool inside = false;
  while (file && std::fgets(line, sizeof line, file.get()) != nullptr) {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    std::uint64_t kilobytes = 0;
    if (std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &begin, &end) == 2) inside = wanted >= begin && wanted < end;
    if (inside && std::sscanf(line, "KernelPageSize: %" SCNu64 " kB", &kilobytes) == 1) return kilobytes * 1024;
  }
  return 0;
}

std::string memlock_hint(const LockedMemory& locked) {
  if (locked.exempt || locked.limit_bytes == kUnlimited) return {};
  return "; this process may lock " + std::to_string(locked.limit_bytes) + " bytes (ulimit -l " +
         std::to_string(locked.limit_bytes / 1024) + ") and has locked " + std::to_string(locked.pinned_bytes) +
         raise_text();
}

std::string registration_text(const RefusedRegistration& refused, const LockedMemory& locked) {
  const std::string what = "cannot register " + std::to_string(refused.bytes) + " bytes with " + refused.device + ": ";
  if (refused.bytes > refused.device_bytes_max)
    return what + "the device takes at most " + bytes_text(refused.device_bytes_max) + " bytes in one registration";
  const bool over = !locked.exempt && locked.limit_bytes != kUnlimited &&
                    locked.pinned_bytes + refused.bytes > locked.limit_bytes;
  if (refused.error == ENOMEM && over) {
    return what + "this process may lock " + std::to_string(locked.limit_bytes) + " bytes (ulimit -l " +
           std::to_string(locked.limit_bytes / 1024) + "), has locked " + std::to_string(locked.pinned_bytes) +
           " and needs " + std::to_string(locked.pinned_bytes + refused.bytes) + raise_text();
  }
  if (refused.error == ENOMEM)
    return what + "the device or the host is out of memory for it (locked so far " + std::to_string(locked.pinned_bytes) +
           " bytes, limit " + (locked.exempt ? std::string("none for this process") : bytes_text(locked.limit_bytes)) + ")";
  const auto usual_page_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  if (refused.error == EINVAL && refused.page_bytes > usual_page_bytes && refused.end % refused.page_bytes != 0)
    return what + "it ends inside a huge page of " + std::to_string(refused.page_bytes) +
           " bytes; make it end where the page does, or set RDMAV_HUGEPAGES_SAFE=1 in the environment";
  if (refused.error == EFAULT) return what + "it is not mapped, or not writable";
  if (refused.error == EOPNOTSUPP) return what + "it is a file's memory, which the kernel does not pin for long";
  return what + errno_text(refused.error);
}

}  // namespace ofl
