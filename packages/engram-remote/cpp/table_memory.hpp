// Memory that tables lie in: zeroed, in huge pages where there are, spread over the NUMA nodes that the process may use.
#pragma once

#include <cstddef>
#include <cstdint>

#include "status.hpp"

namespace engram {

inline constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

// base: aligned to kHugePageBytes.  explicit_huge: explicit huge pages, or a failure that says need and have.  On success
// the text says what it got.
Outcome allocate_table_memory(std::uint64_t bytes, bool explicit_huge, void*& base);
void free_table_memory(void* base, std::uint64_t bytes) noexcept;

// From now on a write ends the process rather than changing a row.
Outcome seal_table_memory(void* base, std::uint64_t bytes);

// OK: the text says which kinds there are.
Outcome huge_pages_available();
// OK: the process may use several nodes, and the text says how many.
Outcome numa_available();

}  // namespace engram
