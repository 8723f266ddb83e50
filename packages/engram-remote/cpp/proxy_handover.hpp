// The blocks of memory that GPU streams and the proxy share, and the proxy's side of their protocol (engram.h).
//
// A block's words: the stream writes rows and ids, then request = 1 (release); the proxy reads request (acquire), takes it
// back to 0, serves, and writes done = 1 (release); the stream waits for it (acquire) and writes done = 0 before it asks
// again.  Nobody else writes them, and the stream does not ask while it waits, so that no update is lost.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>

#include "client_limits.hpp"
#include "client_serving.hpp"

namespace engram {

inline constexpr std::size_t kHandoverIdsOffset = 128;
static_assert(sizeof(engram_handover) == kHandoverIdsOffset && offsetof(engram_handover, rows) == 4 &&
              offsetof(engram_handover, done) == 64);
static_assert(std::atomic_ref<std::uint32_t>::is_always_lock_free, "a GPU takes no lock");

struct Handover {
  engram_handover* block = nullptr;
  std::uint32_t rows_max = 0;
  std::uint32_t layer = 0;
  Staging* staging = nullptr;
};

class Handovers {
 public:
  // ENGRAM_INVALID: there are as many as can be.
  Outcome add(const Handover& handover);
  bool any() const noexcept { return count_.load(std::memory_order_acquire) != 0; }
  // Serves every block that asks; true: one did.  A lookup that cannot be served ends the process: a stream waits, and
  // can be told of nothing but rows.
  bool turn(Serving& serving, ClientCounters& counters) noexcept;

 private:
  std::mutex adding_;
  std::array<Handover, kHandoversMax> all_;
  std::atomic<std::size_t> count_{0};  // published after the entry
};

}  // namespace engram
