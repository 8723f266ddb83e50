// The measuring loops of `ofl bench`, over the public C ABI alone: what they measure is what any user of it gets.
//
// A request begins with a BenchRequest; a payload may follow.  What travels is marked, and both ends look at the first
// and the last word of every body, so that a transfer that went wrong is never measured as a fast one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ofl.h"

namespace ofl::bench {

struct BenchRequest {
  std::uint32_t mode;         // of ofl_bench_mode
  std::uint32_t stamp;        // another one for every request; what the bodies hold follows from it
  std::uint64_t reply_bytes;  // TO_CLIENT: wanted
};
static_assert(sizeof(BenchRequest) == 16);

struct Run {
  std::uint32_t mode;
  std::size_t bytes;
  std::size_t count;
  std::uint32_t window;
  ofl_buffer* memory;  // `window` times `bytes`: TO_CLIENT, replies are placed there; TO_SERVER, it is lent; nullptr: neither
  std::int64_t timeout_ns;  // of each transfer
};

std::int32_t serve(ofl_server* server);
std::int32_t run(ofl_client* client, const Run& run, std::int64_t* samples_ns, std::int64_t* elapsed_ns);

// A body of a request or of an echo: its ends hold the stamp.
void mark(std::byte* body, std::size_t bytes, std::uint32_t stamp) noexcept;
bool marked(const std::byte* body, std::size_t bytes, std::uint32_t stamp) noexcept;

// The endless text that replies are cut from, each at a place that its stamp chooses: the server's memory never changes
// while it is lent, and yet no two replies in a row are alike.
inline constexpr std::size_t kShifts = 64;
inline constexpr std::size_t kShiftBytes = 64;
constexpr std::size_t shift_of(std::uint32_t stamp) noexcept { return stamp % kShifts * kShiftBytes; }
void write_text(std::byte* memory, std::size_t bytes) noexcept;
bool is_text(const std::byte* body, std::size_t bytes, std::size_t shift) noexcept;

}  // namespace ofl::bench
