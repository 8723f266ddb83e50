#include "server_shared.hpp"

namespace ofl {

namespace {

constexpr std::array<const char*, OFL_COUNTERS> kCounterNames = {
    "accepted",       "refused",       "garbage",      "oversized",   "handshake_timeouts", "evicted", "auth_failures",
    "auth_limited",   "not_allowed",   "link_failures", "disconnects", "lost",              "requests", "replies",
    "cancels",        "replies_dropped", "throttled",  "bytes_in",    "bytes_out"};

}  // namespace

const char* Counters::name(std::size_t index) noexcept {
  return index < kCounterNames.size() ? kCounterNames[index] : nullptr;
}

}  // namespace ofl
