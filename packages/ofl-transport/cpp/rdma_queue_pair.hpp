// An RC queue pair with all that belongs to it: two completion queues with an event channel each, and one registered
// stretch of memory that holds the receives and the send slots.  Owns their lives and the queue pair's states; moves no
// frames.
#pragma once

#ifdef OFL_VERBS

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

#include "link.hpp"
#include "rdma_device.hpp"
#include "rdma_limits.hpp"

namespace ofl {

// One of the two completion queues.
class CompletionQueue {
 public:
  CompletionQueue() = default;
  Outcome create(const RdmaDevice& device, std::uint32_t completions);
  // In a child of fork(): only closes what is the child's.
  void leave_to_parent() noexcept;

  ibv_cq* get() const noexcept { return queue_.get(); }
  int descriptor() const noexcept { return events_->fd; }
  // Any thread.  The number of completions, or -1.
  int poll(std::span<ibv_wc> batch) noexcept {
    return ibv_poll_cq(queue_.get(), static_cast<int>(batch.size()), batch.data());
  }
  // Any thread.  The next completion makes the descriptor readable, unless it is already.  There is one event at most,
  // however often it is asked for: one that nobody takes would make the descriptor readable for ever.
  bool ask_event() noexcept;
  // Any thread.  Takes an event from the descriptor; no system call where none was asked for.  False: there was none.
  bool take_event() noexcept;

 private:
  const Verbs* verbs_ = nullptr;
  UniqueEvents events_;
  UniqueCompletions queue_;
  std::mutex mutex_;                // a leaf, held for one look at the descriptor
  std::atomic<bool> asked_{false};  // written under it; true until the event is taken
};

// What `QueuePair::fence` could do.
enum class Fence {
  flushed,  // in error: what was posted completes, flushed
  ended,    // reset or destroyed: nothing that was posted ever completes
  refused,  // the device took none of it, and may go on reading and writing memory
};

class QueuePair {
 public:
  // In INIT, with `kReceives` receives posted.  Only the client's memory is open to the peer's writes.
  static Outcome create(const RdmaPort& port, Role role, std::unique_ptr<QueuePair>& made);
  ~QueuePair();
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  // What the peer must know.
  wire::RdmaLinkBody ours() const noexcept;
  // To RTR and RTS: the peer may send, and so may we.  The body has been judged.
  Outcome connect(const wire::RdmaLinkBody& theirs);
  // Into error; where the device refuses, by whatever means are left.  Unless it refused those too, no write of the peer can
  // reach our memory any more on return.  Once, any thread; nobody sends by then.
  Fence fence() noexcept;
  // Before memory that it may use is given away.  False: the device refused, and may go on using it.
  bool destroy() noexcept;

  const RdmaPort& port() const noexcept { return port_; }
  RdmaDevice& device() const noexcept { return *port_.device; }
  ibv_qp* get() const noexcept { return queue_pair_.get(); }
  CompletionQueue& sends() noexcept { return sends_; }
  CompletionQueue& receives() noexcept { return receives_; }
  std::uint32_t inline_bytes() const noexcept { return inline_bytes_; }
  std::uint32_t pieces_max() const noexcept { return pieces_max_; }
  std::uint32_t local_key() const noexcept { return region_->lkey; }
  std::span<std::byte> receive(std::uint64_t index) const noexcept {
    return memory_.subspan(index * kSegmentBytes, kSegmentBytes);
  }
  std::span<std::byte> slot(std::uint64_t index) const noexcept {
    return memory_.subspan((kReceives + index) * kSegmentBytes, kSegmentBytes);
  }
  // False, with errno: the device did not take it, or the queue pair is destroyed.
  bool post_receive(std::uint64_t index) noexcept;
  // The fence saw this completion, or whoever polled did: the queue pair is in error and everything before has landed.
  void saw_flush() noexcept { flushed_.store(true, std::memory_order_release); }

 private:
  explicit QueuePair(const RdmaPort& port);
  Outcome allocate();
  Outcome create_queue_pair();
  Outcome enter_init(Role role);
  Outcome fail(const char* step, int error) const;

  const RdmaPort port_;
  const Verbs& verbs_;
  const std::uint32_t packet_sequence_;
  std::uint32_t inline_bytes_ = 0;
  std::uint32_t pieces_max_ = 1;
  std::atomic<bool> flushed_{false};
  std::span<std::byte> memory_;
  UniqueRegion region_;
  CompletionQueue sends_;
  CompletionQueue receives_;
  std::mutex destroy_mutex_;  // a leaf: held for one post of a receive, and to destroy the queue pair between two
  UniqueQueuePair queue_pair_;
};

}  // namespace ofl

#endif
