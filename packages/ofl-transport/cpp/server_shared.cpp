#include "server_shared.hpp"

#include <bit>

namespace ofl {

namespace {

constexpr std::array<const char*, OFL_COUNTERS> kCounterNames = {
    "accepted",    "refused", "garbage",  "oversized", "handshake_timeouts", "evicted",   "disconnects", "lost",
    "requests",    "replies", "cancels",  "replies_dropped", "throttled",    "bytes_in",  "bytes_out"};

}  // namespace

const char* Counters::name(std::size_t index) noexcept {
  return index < kCounterNames.size() ? kCounterNames[index] : nullptr;
}

Body Body::allocate(std::size_t bytes) noexcept {
  Body body;
  body.bytes = bytes;
  body.capacity = std::bit_ceil(bytes < 64 ? std::size_t{64} : bytes);
  body.memory.reset(static_cast<std::byte*>(std::malloc(body.capacity)));
  return body;
}

}  // namespace ofl
