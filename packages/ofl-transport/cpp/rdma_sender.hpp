// The sending half of an RDMA connection: segments, placements, credits, completions of sends.
//
// Threads: `send`, `place`, `reap` come from the sending side; `credited`, `heard`, `reposted`, `tell` from the receiving
// side, which must return credits while nobody sends; the rest from any.  `mutex_` is a leaf, held for one post or one
// look at the completion queue.
//
// Numbers: every post has the next number and takes the slot number % kSendSlots, whether it needs the memory or not.  A
// completion of number n says that all up to n are done, so most posts need none of their own.
#pragma once

#ifdef OFL_VERBS

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "backend.hpp"
#include "rdma_queue_pair.hpp"
#include "rdma_segments.hpp"
#include "rdma_status.hpp"

namespace ofl {

// What both ends agreed on.
struct RdmaTerms {
  std::uint32_t segment_bytes = 0;
  std::uint32_t peer_receives = 0;  // our credits at the start
};

class RdmaSender {
 public:
  RdmaSender(QueuePair& queue_pair, RdmaFault& fault, const RdmaTerms& terms, bool may_speak) noexcept;
  RdmaSender(const RdmaSender&) = delete;
  RdmaSender& operator=(const RdmaSender&) = delete;

  Progress send(Outgoing& frame) noexcept;
  Progress place(const wire::PlacementRecord& where, Outgoing& frame) noexcept;
  void reap() noexcept;

  // The peer returned receives.  False: more than it has.
  bool credited(std::uint32_t receives) noexcept;
  // The peer's queue pair is ready for what we send.
  void heard() noexcept { may_speak_.store(true, std::memory_order_release); }
  // Receives of ours were posted again.
  void reposted(std::uint32_t receives) noexcept {
    if (receives > 0) untold_.fetch_add(receives, std::memory_order_acq_rel);
  }
  // Tells the peer of its credits if that is due and possible; otherwise a later call does.
  void tell() noexcept {
    if (untold_.load(std::memory_order_acquire) >= kTellAt) tell_now();
  }
  // How many segments and placements the peer may have sent by now: the receives that it was told of.
  std::uint64_t promised() const noexcept { return promised_.load(std::memory_order_acquire); }
  // True, once, when what was blocked may go on.
  bool may_go_on() noexcept;

  // True: all that completes by itself has been acknowledged, or never will be.
  bool acknowledged() noexcept;
  // When a close frame was sent that is on its way; 0: none is.
  Nanoseconds goodbye_said() noexcept;
  // Until `acknowledged`, the deadline, or the end of the control socket.
  void wait_acknowledged(int control, Nanoseconds until) noexcept;
  // On return nothing is posted any more, and no post is under way.
  void stop() noexcept {
    const std::scoped_lock lock(mutex_);
    stopped_.store(true, std::memory_order_release);
  }
  // The queue pair is in error: waits until lent memory has come back flushed.
  void settle(Nanoseconds until) noexcept;
  // The queue pair is reset or destroyed: nothing that was posted is read any more.
  void give_all_back() noexcept;

 private:
  static constexpr std::uint32_t kTellAt = kReceives / 2;

  void tell_now() noexcept;
  // All with mutex_ held.
  Progress ready(std::uint32_t reserve, bool needs_credit) noexcept;
  Progress go_on(bool needs_credit) noexcept;
  bool owes_life() const noexcept;
  bool post_heartbeat() noexcept;
  bool post_segment(Outgoing& frame) noexcept;
  bool post_write(const wire::PlacementRecord& where, Outgoing& frame, Memory* lent, std::size_t step) noexcept;
  bool post(ibv_send_wr& request, const Gather& gather, Memory* lent, bool signalled) noexcept;
  void take_completions() noexcept;
  void complete_through(std::uint64_t number) noexcept;
  // Before the post as well: the peer may use them before the post itself returns.
  std::uint32_t take_untold() noexcept;
  // Before the post: the peer may return it before the post itself returns.
  void spend_credit() noexcept { credits_.fetch_sub(1, std::memory_order_acq_rel); }
  std::uint32_t room() const noexcept { return kSendSlots - static_cast<std::uint32_t>(posted_ - done_); }
  Memory* usable(Memory* lent) const noexcept;

  QueuePair& queue_pair_;
  RdmaFault& fault_;
  const RdmaTerms terms_;
  const std::size_t write_bytes_max_;  // of one write from lent memory: whole segments, at most kUnseenBytesMax
  std::atomic<bool> may_speak_;
  std::atomic<bool> stopped_{false};
  std::atomic<std::uint32_t> credits_;
  std::atomic<std::uint32_t> untold_{0};  // receives posted again since the peer was told
  std::atomic<std::uint64_t> promised_{kReceives};

  std::atomic<bool> waits_{false};        // a send or placement was blocked

  std::mutex mutex_;
  bool waits_for_credit_ = false;
  std::uint64_t posted_ = 0;      // number of the next post
  std::uint64_t done_ = 0;        // all below are complete
  std::uint64_t unseen_bytes_ = 0;  // of writes posted since the last post that completes at the peer
  std::uint64_t signalled_ = 0;   // one past the last post that completes by itself
  std::uint64_t goodbye_ = 0;     // one past the post of a close frame
  Nanoseconds goodbye_said_ = 0;  // when that was
  std::array<std::shared_ptr<Memory>, kSendSlots> lent_;  // the caller may let go of it before the completion is taken
};

}  // namespace ofl

#endif
