#include "client_counters.hpp"

#include <bit>
#include <string>

namespace engram {

namespace {

constexpr std::uint32_t kFirstFallback = static_cast<std::uint32_t>(Counter::fallbacks);

std::array<std::string, kClientCounters> make_names() {
  std::array<std::string, kClientCounters> names = {"lookups_remote", "lookups_local",     "lookups_failed",
                                                    "rows_remote",    "rows_local",        "rows_out_of_shard",
                                                    "bytes_remote",   "handovers",         "opens",
                                                    "opens_refused",  "connects_failed",   "connections_ended"};
  for (std::uint32_t reason = 1; reason < kReasons; ++reason)
    names[kFirstFallback + reason - 1] = std::string("fallbacks_") + kReasonNames[reason];
  return names;
}

}  // namespace

const char* client_counter_name(std::uint32_t index) noexcept {
  static const std::array<std::string, kClientCounters> names = make_names();
  return index < names.size() ? names[index].c_str() : nullptr;
}

// Bucket 4 * e + m holds the spans of (4 + m) / 4 * 2^e; those below 4 ns share the first ones.
std::uint32_t Latency::bucket_of(std::uint64_t span_ns) noexcept {
  if (span_ns < 4) return static_cast<std::uint32_t>(span_ns);
  const auto exponent = static_cast<std::uint32_t>(std::bit_width(span_ns)) - 1;
  const std::uint32_t bucket = 4 * exponent + static_cast<std::uint32_t>((span_ns >> (exponent - 2)) & 3U) - 4;
  return bucket < ENGRAM_LATENCY_BUCKETS ? bucket : ENGRAM_LATENCY_BUCKETS - 1;
}

std::uint64_t Latency::bucket_floor_ns(std::uint32_t bucket) noexcept {
  if (bucket < 4) return bucket;
  const std::uint32_t exponent = bucket / 4 + 1;
  return (std::uint64_t{4} + bucket % 4) << (exponent - 2);
}

// Only the proxy adds, so that the extremes need no exchange.
void Latency::add(Nanoseconds span) noexcept {
  const auto span_ns = span > 0 ? static_cast<std::uint64_t>(span) : 0U;
  count_.fetch_add(1, std::memory_order_relaxed);
  sum_ns_.fetch_add(span_ns, std::memory_order_relaxed);
  if (span_ns < min_ns_.load(std::memory_order_relaxed)) min_ns_.store(span_ns, std::memory_order_relaxed);
  if (span_ns > max_ns_.load(std::memory_order_relaxed)) max_ns_.store(span_ns, std::memory_order_relaxed);
  buckets_[bucket_of(span_ns)].fetch_add(1, std::memory_order_relaxed);
}

void Latency::copy_to(engram_latency& latency) const noexcept {
  latency.count = count_.load(std::memory_order_relaxed);
  latency.sum_ns = sum_ns_.load(std::memory_order_relaxed);
  latency.min_ns = latency.count == 0 ? 0 : min_ns_.load(std::memory_order_relaxed);
  latency.max_ns = max_ns_.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < buckets_.size(); ++i) latency.buckets[i] = buckets_[i].load(std::memory_order_relaxed);
}

void ClientCounters::copy_to(std::uint64_t* values) const noexcept {
  for (std::size_t i = 0; i < values_.size(); ++i) values[i] = values_[i].load(std::memory_order_relaxed);
}

}  // namespace engram
