#include "proxy_handover.hpp"

#include <cstdio>
#include <cstdlib>
#include <string>

namespace engram {

namespace {

[[noreturn]] void give_up(const Handover& handover, const std::string& why) noexcept {
  std::fprintf(stderr, "engram: layer %u of a hand-over: %s; the stream that waits cannot be told, so the process ends\n",
               handover.layer, why.c_str());
  std::abort();
}

void serve(const Handover& handover, Serving& serving) noexcept {
  engram_handover& block = *handover.block;
  const std::uint32_t rows = std::atomic_ref(block.rows).load(std::memory_order_relaxed);
  if (rows > handover.rows_max)
    give_up(handover, "rows is " + std::to_string(rows) + ", over the " + std::to_string(handover.rows_max) + " it was attached with");
  const auto* ids = reinterpret_cast<const std::int32_t*>(reinterpret_cast<const std::byte*>(&block) + kHandoverIdsOffset);
  const engram_batch batch{ids, rows, handover.layer};
  const Served served = serving.serve({{&batch, 1}, rows}, *handover.staging);
  if (!served.outcome) give_up(handover, served.outcome.text);
  std::atomic_ref(block.done).store(1, std::memory_order_release);  // pairs with the stream's wait
}

}  // namespace

Outcome Handovers::add(const Handover& handover) {
  const std::scoped_lock lock(adding_);
  const std::size_t index = count_.load(std::memory_order_relaxed);
  if (index == kHandoversMax)
    return failure(ENGRAM_INVALID, "block: a client takes at most " + std::to_string(kHandoversMax));
  for (std::size_t i = 0; i < index; ++i)
    if (all_[i].block == handover.block) return failure(ENGRAM_INVALID, "block is attached already");
  all_[index] = handover;
  count_.store(index + 1, std::memory_order_release);  // pairs with any and turn
  return {};
}

bool Handovers::turn(Serving& serving, ClientCounters& counters) noexcept {
  bool worked = false;
  const std::size_t count = count_.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < count; ++i) {
    std::atomic_ref request(all_[i].block->request);
    if (request.load(std::memory_order_acquire) == 0) continue;  // pairs with the stream's write
    request.exchange(0, std::memory_order_relaxed);  // before `done`: the stream may ask again right after that
    serve(all_[i], serving);
    counters.add(Counter::handovers);
    worked = true;
  }
  return worked;
}

}  // namespace engram
