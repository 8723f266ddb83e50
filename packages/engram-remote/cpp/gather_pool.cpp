#include "gather_pool.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "process.hpp"

namespace engram {

namespace {

// Rows of one piece.  A quarter of a megabyte of usual rows: about as long as handing a lookup over, short beside a prefill
// chunk.
constexpr std::uint32_t kPieceRows = 1024;
// How long a wait for a buffer may keep a thread from seeing that the pool stops.
constexpr Nanoseconds kBufferSlice = 20 * kMillisecond;

}  // namespace

void GatherPool::start(std::size_t threads, Nanoseconds spin) {
  spin_ = spin;
  for (std::size_t i = 0; i < threads; ++i) {
    char name[16];
    std::snprintf(name, sizeof name, "engram-gather%u", static_cast<unsigned>(i % 100));
    threads_.push_back(start_quiet_thread(name, [this] { work(); }));
  }
}

void GatherPool::submit(std::unique_ptr<Lookup> lookup) {
  const std::size_t now = under_way_.fetch_add(1, std::memory_order_acq_rel) + 1;
  counters_.raise_to(ServerCounter::queue_max, now);
  {
    const std::scoped_lock lock(mutex_);
    waiting_.push_back(std::move(lookup));
    waiting_count_.fetch_add(1, std::memory_order_relaxed);
    work_.fetch_add(1, std::memory_order_release);
  }
  changed_.notify_one();
}

void GatherPool::stop() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  waiting_.clear();
  cut_.clear();
}

void GatherPool::spin_for_work() const noexcept {
  if (spin_ == 0) return;
  const Nanoseconds end = now_ns() + spin_;
  while (work_.load(std::memory_order_acquire) == 0 && !stopping_.load(std::memory_order_relaxed) && now_ns() < end) relax();
}

void GatherPool::work() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (look_for_work(lock)) continue;
    lock.unlock();
    spin_for_work();
    lock.lock();
    changed_.wait(lock, [this] { return stopping_ || !cut_.empty() || (!waiting_.empty() && !dispatching_); });
  }
}

bool GatherPool::look_for_work(std::unique_lock<std::mutex>& lock) {
  if (!cut_.empty()) {
    gather_piece(lock);
    return true;
  }
  if (waiting_.empty() || dispatching_) return false;
  take_buffer(lock);
  return true;
}

void GatherPool::take_buffer(std::unique_lock<std::mutex>& lock) {
  dispatching_ = true;
  lock.unlock();
  ReplyBuffer* buffer = buffers_.try_take();
  if (buffer == nullptr) {
    counters_.add(ServerCounter::lookups_waited);
    while (buffer == nullptr && !stopping_.load(std::memory_order_relaxed)) buffer = buffers_.take(now_ns() + kBufferSlice);
  }
  lock.lock();
  dispatching_ = false;
  if (buffer == nullptr) return;  // the pool stops
  const std::shared_ptr<Lookup> lookup = std::move(waiting_.front());
  waiting_.pop_front();
  waiting_count_.fetch_sub(1, std::memory_order_relaxed);
  lookup->place(buffer);
  lookup->cut(kPieceRows);
  work_.fetch_add(lookup->pieces.size() - 1, std::memory_order_release);
  const bool several = lookup->pieces.size() > 1 || !waiting_.empty();
  cut_.push_back(lookup);
  if (several) changed_.notify_all();
}

void GatherPool::gather_piece(std::unique_lock<std::mutex>& lock) {
  const std::shared_ptr<Lookup> lookup = cut_.front();
  const Lookup::Piece piece = lookup->pieces[lookup->pieces_taken++];
  work_.fetch_sub(1, std::memory_order_relaxed);
  if (lookup->pieces_taken == lookup->pieces.size()) cut_.pop_front();
  lock.unlock();
  lookup->fill(piece);
  if (lookup->pieces_left.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    finish_(*lookup);
    under_way_.fetch_sub(1, std::memory_order_acq_rel);
  }
  lock.lock();
}

}  // namespace engram
