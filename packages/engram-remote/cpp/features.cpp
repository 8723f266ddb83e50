#include "features.hpp"

#include <cerrno>
#include <string>

#include <sys/syscall.h>
#include <unistd.h>

#if __has_include(<linux/io_uring.h>)
#include <linux/io_uring.h>
#define ENGRAM_IO_URING
#endif

#include "checksum.hpp"
#include "table_memory.hpp"

namespace engram {

#if defined(ENGRAM_IO_URING) && defined(SYS_io_uring_setup)

Outcome io_uring_available() {
  io_uring_params params{};
  const long ring = ::syscall(SYS_io_uring_setup, 1U, &params);
  if (ring >= 0) {
    ::close(static_cast<int>(ring));
    return {};
  }
  const int error = errno;
  const char* const hint = error == EPERM    ? " (kernel.io_uring_disabled, or a container's seccomp profile)"
                           : error == ENOMEM ? " (the limit of locked memory)"
                                             : "";
  return failure(ENGRAM_SYSTEM, "the kernel makes no io_uring: " + errno_text(error) + hint);
}

#else

Outcome io_uring_available() {
  return failure(ENGRAM_SYSTEM, "this build has no io_uring: linux/io_uring.h was not there when it was built");
}

#endif

Outcome feature(std::string_view name) {
  if (name == "io_uring") return io_uring_available();
  if (name == "checksum") return checksum_available();
  if (name == "huge_pages") return huge_pages_available();
  if (name == "numa") return numa_available();
  return failure(ENGRAM_INVALID, std::string(name).append(" is not one of: io_uring, checksum, huge_pages, numa"));
}

}  // namespace engram
