// The threads that gather: lookups wait in order for a reply buffer, then their pieces are shared out.  Whoever finds nothing
// to gather and no buffer missing takes the next lookup's buffer; one thread at a time, so that their order holds.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "clock.hpp"
#include "reply_buffers.hpp"
#include "server_counters.hpp"
#include "server_lookup.hpp"

namespace engram {

class GatherPool {
 public:
  // finish: called by a pool thread when a lookup's last piece is done; it answers and gives the buffer away.
  GatherPool(ReplyBuffers& buffers, ServerCounters& counters, std::function<void(Lookup&)> finish)
      : buffers_(buffers), counters_(counters), finish_(std::move(finish)) {}
  ~GatherPool() { stop(); }
  GatherPool(const GatherPool&) = delete;
  GatherPool& operator=(const GatherPool&) = delete;

  void start(std::size_t threads, Nanoseconds spin);
  void submit(std::unique_ptr<Lookup> lookup);
  // Lookups that were submitted and not answered yet.
  std::size_t under_way() const noexcept { return under_way_.load(std::memory_order_acquire); }
  // Lookups wait for a buffer, so that none may be taken past them.
  bool waiting() const noexcept { return waiting_count_.load(std::memory_order_relaxed) != 0; }
  // Ends the threads; lookups that were not begun are dropped.
  void stop();

 private:
  void work();
  bool look_for_work(std::unique_lock<std::mutex>& lock);
  void take_buffer(std::unique_lock<std::mutex>& lock);
  void gather_piece(std::unique_lock<std::mutex>& lock);
  void spin_for_work() const noexcept;

  ReplyBuffers& buffers_;
  ServerCounters& counters_;
  const std::function<void(Lookup&)> finish_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Lookup>> waiting_;  // for a buffer
  std::deque<std::shared_ptr<Lookup>> cut_;      // with pieces that nobody took
  bool dispatching_ = false;
  std::atomic<bool> stopping_{false};
  std::atomic<std::size_t> work_{0};  // pieces that nobody took, and lookups that wait
  std::atomic<std::size_t> waiting_count_{0};
  std::atomic<std::size_t> under_way_{0};
  Nanoseconds spin_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace engram
