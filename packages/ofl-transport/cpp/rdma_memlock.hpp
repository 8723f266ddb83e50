// Why a device did not register memory, in words that name the limit, the need and the command.  Reads /proc and the
// process's limits; changes nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace ofl {

inline constexpr std::uint64_t kUnlimited = ~std::uint64_t{0};

// What this process may lock into memory.
struct LockedMemory {
  std::uint64_t limit_bytes = kUnlimited;  // RLIMIT_MEMLOCK
  std::uint64_t pinned_bytes = 0;          // by registrations so far
  bool exempt = false;                     // CAP_IPC_LOCK: the limit does not count
};

LockedMemory locked_memory();

// The size of the pages under an address (huge pages are larger than usual ones); 0: not mapped, or not known.
std::uint64_t page_bytes_at(const void* address);

// One registration that failed.
struct RefusedRegistration {
  std::string device;
  std::uint64_t bytes = 0;
  std::uint64_t device_bytes_max = kUnlimited;  // the largest single registration of the device
  std::uint64_t page_bytes = 0;                 // under its last byte; 0: unknown
  std::uint64_t end = 0;                        // address after its last byte
  int error = 0;                                // errno
};

// Appended to the failure of anything else that a device may have to lock memory for; empty where no limit counts.
std::string memlock_hint(const LockedMemory& locked);

std::string registration_text(const RefusedRegistration& refused, const LockedMemory& locked);

}  // namespace ofl
