// What the client counts.  Written by the proxy and the connector, read by anyone; each number is exact, several are not of
// one moment.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "client_reason.hpp"
#include "clock.hpp"
#include "engram.h"

namespace engram {

enum class Counter : std::uint32_t {
  lookups_remote,
  lookups_local,
  lookups_failed,
  rows_remote,
  rows_local,
  rows_out_of_shard,
  bytes_remote,
  handovers,
  opens,
  opens_refused,
  connects_failed,
  connections_ended,
  fallbacks  // one counter for each reason but `none` follows from here on
};

inline constexpr std::size_t kClientCounters = static_cast<std::size_t>(Counter::fallbacks) + kReasons - 1;
static_assert(kClientCounters <= ENGRAM_CLIENT_COUNTERS);

// nullptr past the last.
const char* client_counter_name(std::uint32_t index) noexcept;

// Spans in buckets of a quarter of a power of two, so that a percentile read from it is at most a fifth off.
class Latency {
 public:
  void add(Nanoseconds span) noexcept;
  void copy_to(engram_latency& latency) const noexcept;
  // Shortest span of a bucket.
  static std::uint64_t bucket_floor_ns(std::uint32_t bucket) noexcept;
  static std::uint32_t bucket_of(std::uint64_t span_ns) noexcept;

 private:
  std::atomic<std::uint64_t> count_{0};
  std::atomic<std::uint64_t> sum_ns_{0};
  std::atomic<std::uint64_t> min_ns_{UINT64_MAX};
  std::atomic<std::uint64_t> max_ns_{0};
  std::array<std::atomic<std::uint64_t>, ENGRAM_LATENCY_BUCKETS> buckets_{};
};

class ClientCounters {
 public:
  void add(Counter counter, std::uint64_t count = 1) noexcept {
    values_[static_cast<std::size_t>(counter)].fetch_add(count, std::memory_order_relaxed);
  }
  void add_fallback(Reason reason) noexcept {
    values_[static_cast<std::size_t>(Counter::fallbacks) + static_cast<std::size_t>(reason) - 1].fetch_add(
        1, std::memory_order_relaxed);
  }
  void copy_to(std::uint64_t* values) const noexcept;

  Latency remote;
  Latency local;

 private:
  std::array<std::atomic<std::uint64_t>, ENGRAM_CLIENT_COUNTERS> values_{};
};

}  // namespace engram
