// Reads the extents of a plan, by one of two backends.  All rows or none: the first fault ends the whole read, and then
// nothing that was placed counts.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "reader_plan.hpp"
#include "status.hpp"

namespace engram {

// Why a read gave up.
struct ReadFault {
  Extent extent;
  int error = 0;  // an errno, or ReadAttempt::kEndOfFile
};

class Reader {
 public:
  virtual ~Reader() = default;
  Reader() = default;
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  // Reads and scatters every extent.  One thread at a time.
  virtual std::optional<ReadFault> read(const ReadPlan& plan) noexcept = 0;
  virtual std::string describe() const = 0;
};

// What io_uring lacks here, or OK: that it was built in, and that the kernel lets this process use it.
Outcome uring_available();

// Only where uring_available.
Outcome make_uring_reader(std::uint32_t extent_bytes_max, std::unique_ptr<Reader>& reader);

// threads: besides the caller, at most kPoolThreadsMax.
inline constexpr std::uint32_t kPoolThreadsMax = 1024;
Outcome make_pool_reader(std::uint32_t threads, std::uint32_t extent_bytes_max, std::unique_ptr<Reader>& reader);

}  // namespace engram
