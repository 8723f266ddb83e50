#include "features.hpp"

#include <string>

#include "checksum.hpp"
#include "reader.hpp"
#include "table_memory.hpp"

namespace engram {

Outcome feature(std::string_view name) {
  if (name == "io_uring") return uring_available();
  if (name == "checksum") return checksum_available();
  if (name == "huge_pages") return huge_pages_available();
  if (name == "numa") return numa_available();
  return failure(ENGRAM_INVALID, std::string(name).append(" is not one of: io_uring, checksum, huge_pages, numa"));
}

}  // namespace engram
