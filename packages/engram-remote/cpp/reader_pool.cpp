// A pool of threads that read with pread; the caller is one of them.

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include <unistd.h>

#include "process.hpp"
#include "reader.hpp"
#include "reader_attempt.hpp"
#include "reader_memory.hpp"

namespace engram {

namespace {

constexpr std::size_t kExtentsPerThread = 4;  // fewer are read sooner than another thread wakes up

class PoolReader final : public Reader {
 public:
  PoolReader(std::uint32_t threads, std::uint32_t extent_bytes_max) : own_(aligned_bytes(extent_bytes_max)) {
    buffers_.reserve(threads);
    for (std::uint32_t i = 0; i < threads; ++i) buffers_.push_back(aligned_bytes(extent_bytes_max));
    try {
      for (std::uint32_t i = 0; i < threads; ++i)
        threads_.push_back(start_quiet_thread("engram-pread", [this, i] { serve(buffers_[i].get()); }));
    } catch (...) {
      end();
      throw;
    }
  }
  ~PoolReader() override { end(); }

  std::optional<ReadFault> read(const ReadPlan& plan) noexcept override;
  std::string describe() const override { return "pread, " + std::to_string(threads_.size() + 1) + " threads"; }

 private:
  void serve(std::byte* buffer);
  void work(std::byte* buffer) noexcept;
  bool read_one(const Extent& extent, std::byte* buffer) noexcept;
  void end() noexcept;

  AlignedBytes own_;  // of whoever calls read
  std::vector<AlignedBytes> buffers_;
  std::vector<std::thread> threads_;

  std::mutex mutex_;  // of the next four; what `read` writes before it raises wanted_ is seen after taking one
  std::condition_variable work_there_;
  std::condition_variable work_over_;
  std::size_t wanted_ = 0;   // threads that shall take part and have not begun
  std::size_t running_ = 0;  // threads that shall take part and have not ended
  bool ending_ = false;

  const ReadPlan* plan_ = nullptr;
  std::atomic<std::size_t> next_{0};
  std::atomic<bool> failed_{false};
  std::optional<ReadFault> fault_;  // written once, by whoever raised failed_
};

std::optional<ReadFault> PoolReader::read(const ReadPlan& plan) noexcept {
  plan_ = &plan;
  next_.store(0, std::memory_order_relaxed);
  failed_.store(false, std::memory_order_relaxed);
  fault_.reset();
  const std::size_t helpers = std::min(threads_.size(), plan.extents().size() / kExtentsPerThread);
  if (helpers > 0) {
    const std::scoped_lock lock(mutex_);
    wanted_ = helpers;
    running_ = helpers;
  }
  if (helpers == threads_.size()) {
    work_there_.notify_all();
  } else {
    for (std::size_t i = 0; i < helpers; ++i) work_there_.notify_one();
  }
  work(own_.get());
  if (helpers > 0) {
    std::unique_lock lock(mutex_);
    running_ -= wanted_;  // nothing is left for who has not begun
    wanted_ = 0;
    work_over_.wait(lock, [&] { return running_ == 0; });
  }
  plan_ = nullptr;
  return fault_;
}

void PoolReader::serve(std::byte* buffer) {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_there_.wait(lock, [&] { return wanted_ > 0 || ending_; });
    if (ending_) return;
    --wanted_;
    lock.unlock();
    work(buffer);
    lock.lock();
    if (--running_ == 0) work_over_.notify_one();
  }
}

void PoolReader::work(std::byte* buffer) noexcept {
  const std::span<const Extent> extents = plan_->extents();
  for (;;) {
    const std::size_t i = next_.fetch_add(1, std::memory_order_relaxed);
    if (i >= extents.size() || failed_.load(std::memory_order_relaxed)) return;
    if (!read_one(extents[i], buffer)) return;
  }
}

bool PoolReader::read_one(const Extent& extent, std::byte* buffer) noexcept {
  const RowLayout& layout = plan_->layout(extent);
  ReadAttempt attempt(extent.offset, extent.needed, extent.asked, layout.block);
  for (;;) {
    const ReadStep step = attempt.step();
    const ssize_t got = ::pread(layout.descriptor, buffer + step.at, step.bytes, static_cast<off_t>(step.offset));
    const ReadAttempt::Verdict verdict = attempt.took(got < 0 ? -static_cast<std::int64_t>(errno) : got);
    if (verdict == ReadAttempt::Verdict::again) continue;
    if (verdict == ReadAttempt::Verdict::done) break;
    if (!failed_.exchange(true, std::memory_order_relaxed)) fault_ = ReadFault{extent, attempt.error()};
    return false;
  }
  plan_->scatter(extent, buffer);
  return true;
}

void PoolReader::end() noexcept {
  {
    const std::scoped_lock lock(mutex_);
    ending_ = true;
  }
  work_there_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

}  // namespace

Outcome make_pool_reader(std::uint32_t threads, std::uint32_t extent_bytes_max, std::unique_ptr<Reader>& reader) {
  if (threads > kPoolThreadsMax)
    return failure(ENGRAM_INVALID, "read_threads must be at most " + std::to_string(kPoolThreadsMax) + ", not " +
                                       std::to_string(threads));
  reader = std::make_unique<PoolReader>(threads, extent_bytes_max);
  return {};
}

}  // namespace engram
