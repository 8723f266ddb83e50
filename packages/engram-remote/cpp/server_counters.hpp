// What a server counts, by name; read from any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "engram.h"
#include "wire.hpp"

namespace engram {

enum class ServerCounter : std::size_t {
  connections,       // negotiated since the start
  connections_open,  // now
  opens,
  lookups,         // answered with rows
  lookups_inline,  // of them, by the receiver itself
  lookups_waited,  // found no idle reply buffer and waited for one
  rows,
  rows_absent,  // of them, ids without a row: zero bytes
  bytes,        // of the replies with rows
  gather_ns,    // from reading a request to its last row, summed over lookups
  queue_max,    // most lookups that waited or were gathered at once
  stats,
  replies_lost,  // the connection went before its answer
  refused_bad_message,
  refused_version,
  refused_identity,
  refused_no_table,
  refused_shape,
  refused_not_open,
  refused_bad_id,
  refused_limit,
  refused_draining,
  count
};

class ServerCounters {
 public:
  static constexpr std::size_t kCount = static_cast<std::size_t>(ServerCounter::count);
  static_assert(kCount <= ENGRAM_SERVER_COUNTERS);

  void add(ServerCounter counter, std::uint64_t amount = 1) noexcept {
    at(counter).fetch_add(amount, std::memory_order_relaxed);
  }
  void subtract(ServerCounter counter) noexcept { at(counter).fetch_sub(1, std::memory_order_relaxed); }
  void raise_to(ServerCounter counter, std::uint64_t value) noexcept {
    std::uint64_t seen = at(counter).load(std::memory_order_relaxed);
    while (seen < value && !at(counter).compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
    }
  }
  void refused(wire::Code code) noexcept {
    constexpr auto first = static_cast<std::size_t>(ServerCounter::refused_bad_message);
    values_[first + static_cast<std::size_t>(code) - 1].fetch_add(1, std::memory_order_relaxed);
  }
  std::uint64_t value(std::size_t index) const noexcept { return values_[index].load(std::memory_order_relaxed); }

  // nullptr past the last.
  static const char* name(std::size_t index) noexcept;

 private:
  std::atomic<std::uint64_t>& at(ServerCounter counter) noexcept { return values_[static_cast<std::size_t>(counter)]; }
  std::array<std::atomic<std::uint64_t>, kCount> values_{};
};

static_assert(static_cast<std::size_t>(ServerCounter::refused_draining) ==
              static_cast<std::size_t>(ServerCounter::refused_bad_message) + wire::kCodes - 2);

}  // namespace engram
