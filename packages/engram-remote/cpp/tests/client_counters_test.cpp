#include "client_counters.hpp"

#include <cstring>
#include <set>
#include <string>

#include "check.hpp"

using engram::Latency;

TEST(every_span_lies_in_its_bucket_and_buckets_follow_one_another) {
  for (std::uint32_t bucket = 1; bucket < ENGRAM_LATENCY_BUCKETS; ++bucket) {
    const std::uint64_t floor = Latency::bucket_floor_ns(bucket);
    CHECK(floor > Latency::bucket_floor_ns(bucket - 1));
    CHECK(Latency::bucket_of(floor) == bucket);
    CHECK(Latency::bucket_of(floor - 1) == bucket - 1);
  }
  CHECK(Latency::bucket_floor_ns(ENGRAM_LATENCY_BUCKETS - 1) > 600'000'000'000U);  // the longest timeout has one
  CHECK(Latency::bucket_of(UINT64_MAX) == ENGRAM_LATENCY_BUCKETS - 1);
}

TEST(spans_are_summed_and_their_extremes_kept) {
  Latency latency;
  engram_latency read{};
  latency.copy_to(read);
  CHECK(read.count == 0 && read.min_ns == 0 && read.max_ns == 0);
  for (const engram::Nanoseconds span : {5'000, 1'000, 3'000}) latency.add(span);
  latency.copy_to(read);
  CHECK(read.count == 3 && read.sum_ns == 9'000 && read.min_ns == 1'000 && read.max_ns == 5'000);
  CHECK(read.buckets[Latency::bucket_of(3'000)] == 1);
}

TEST(every_counter_has_a_name_of_its_own) {
  std::set<std::string> names;
  for (std::uint32_t i = 0; i < engram::kClientCounters; ++i) {
    CHECK(engram::client_counter_name(i) != nullptr);
    names.insert(engram::client_counter_name(i));
  }
  CHECK(names.size() == engram::kClientCounters);
  CHECK(names.count("fallbacks_late") == 1 && names.count("fallbacks_refused_draining") == 1);
  CHECK(engram::client_counter_name(engram::kClientCounters) == nullptr);
}
