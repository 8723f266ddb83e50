#include "rdma_sender.hpp"

#ifdef OFL_VERBS

#include <algorithm>
#include <cassert>

#include <poll.h>
#include <sched.h>

#include <arpa/inet.h>

namespace ofl {

namespace {

constexpr std::uint32_t kSlotBits = 8;  // of a placement's immediate data; the rest counts full segments
static_assert(wire::kSlots == 1U << kSlotBits);

constexpr char kNotTaken[] = "this device did not take a send";

}  // namespace

RdmaSender::RdmaSender(QueuePair& queue_pair, RdmaFault& fault, const RdmaTerms& terms, bool may_speak) noexcept
    : queue_pair_(queue_pair),
      fault_(fault),
      terms_(terms),
      write_bytes_max_(
          std::max(std::min(queue_pair.port().message_bytes_max, kUnseenBytesMax) / terms.segment_bytes, 1U) *
          terms.segment_bytes),
      may_speak_(may_speak),
      credits_(terms.peer_receives) {}

// `reserve`: credits and slots that stay for credit updates, without which both ends could wait for each other.
Progress RdmaSender::ready(std::uint32_t reserve, bool needs_credit) noexcept {
  if (fault_.any() || stopped_.load(std::memory_order_acquire)) return Progress::failed;
  if (!may_speak_.load(std::memory_order_acquire)) return Progress::blocked;
  if (needs_credit && credits_.load(std::memory_order_acquire) <= reserve) return Progress::blocked;
  if (room() > reserve) return Progress::done;
  take_completions();
  if (room() <= reserve) {
    // Asked first, looked at again after: a completion in between is seen or told.
    if (!queue_pair_.sends().ask_event()) fault_.broken_wire(kNotTaken);
    take_completions();
  }
  if (fault_.any()) return Progress::failed;
  return room() > reserve ? Progress::done : Progress::blocked;
}

Progress RdmaSender::go_on(bool needs_credit) noexcept {
  waits_for_credit_ = needs_credit;
  waits_.store(true, std::memory_order_release);  // before `ready` asks: whoever takes its event comes to `may_go_on`
  const Progress progress = ready(kReserve, needs_credit);
  if (progress != Progress::blocked) waits_.store(false, std::memory_order_release);
  return progress;
}

// What ends the wait may come, and its event be taken, before anybody sleeps.
bool RdmaSender::may_go_on() noexcept {
  if (!waits_.load(std::memory_order_acquire)) return false;
  const std::scoped_lock lock(mutex_);
  return waits_.load(std::memory_order_acquire) && go_on(waits_for_credit_) != Progress::blocked;
}

Progress RdmaSender::send(Outgoing& frame) noexcept {
  while (frame.sent() < frame.size()) {
    const std::scoped_lock lock(mutex_);
    const Progress progress = go_on(true);
    if (progress != Progress::done) return progress;
    if (!post_segment(frame)) return Progress::failed;
  }
  return Progress::done;
}

// Bounce memory is registered by its twin, where no part lies.
Memory* RdmaSender::usable(Memory* lent) const noexcept {
  if (lent == nullptr || lent->bounces()) return nullptr;
  return lent->registration(queue_pair_.device()) != nullptr ? lent : nullptr;
}

bool RdmaSender::post_segment(Outgoing& frame) noexcept {
  Memory* const lent = usable(frame.lent());
  Gather gather(queue_pair_.slot(posted_ % kSendSlots), lent, queue_pair_.pieces_max());
  std::size_t bytes = frame.size();
  if (frame.sent() == 0 && bytes <= queue_pair_.inline_bytes() && frame.parts().size() < queue_pair_.pieces_max()) {
    gather.take_in_place(frame);
  } else {
    bytes = gather.take(frame, frame.sent(), terms_.segment_bytes);
  }
  ibv_send_wr request{};
  request.opcode = IBV_WR_SEND_WITH_IMM;
  request.imm_data = htonl(take_untold());
  const bool goodbye = static_cast<wire::FrameType>(frame.header().type) == wire::FrameType::close;
  spend_credit();
  if (!post(request, gather, lent, goodbye)) return false;
  if (goodbye) {
    goodbye_ = posted_;
    goodbye_said_ = now_ns();
  }
  frame.advance(bytes);
  return true;
}

Progress RdmaSender::place(const wire::PlacementRecord& where, Outgoing& frame) noexcept {
  if (frame.header().body_bytes > where.bytes) return send(frame);  // the peer's core judges it like any reply
  Memory* lent = usable(frame.lent());
  if (lent != nullptr && !can_gather_body(frame, *lent, queue_pair_.pieces_max())) lent = nullptr;
  const std::size_t step = lent != nullptr ? write_bytes_max_ : terms_.segment_bytes;
  while (frame.sent() < frame.size()) {
    const std::scoped_lock lock(mutex_);
    const std::size_t begun = std::max(frame.sent(), sizeof frame.header());
    const Progress progress = go_on(frame.size() - begun <= step);
    if (progress != Progress::done) return progress;
    const bool posted = owes_life() ? post_heartbeat() : post_write(where, frame, lent, step);
    if (!posted) return Progress::failed;
  }
  return Progress::done;
}

// Writes are no sign of life to the CPU of the peer, and a heartbeat of the core's would come behind all of a placement.  It
// is due by bytes and not by time, so that it is in its place however long the wire takes for what has been posted.  With
// half of the credits spent none is owed: as many signs of life are on their way or lie unread, and the other half is for
// replies.
bool RdmaSender::owes_life() const noexcept {
  return unseen_bytes_ >= kUnseenBytesMax && credits_.load(std::memory_order_acquire) > terms_.peer_receives / 2;
}

// Whole, and between whole writes: no other frame is begun and not finished while a placement goes out.
bool RdmaSender::post_heartbeat() noexcept {
  Outgoing heartbeat(wire::make_header(wire::FrameType::heartbeat, 0, 0), {});
  return post_segment(heartbeat);
}

// `frame.sent()` counts the header, which does not travel, from the first write on.
bool RdmaSender::post_write(const wire::PlacementRecord& where, Outgoing& frame, Memory* lent,
                            std::size_t step) noexcept {
  const std::size_t from = std::max(frame.sent(), sizeof frame.header());
  const std::size_t written = from - sizeof frame.header();
  const std::size_t bytes = std::min(frame.size() - from, step);
  Gather gather(queue_pair_.slot(posted_ % kSendSlots), lent, queue_pair_.pieces_max());
  const std::size_t taken = gather.take(frame, from, bytes);
  assert(taken == bytes);
  static_cast<void>(taken);
  const bool last = from + bytes == frame.size();
  ibv_send_wr request{};
  request.opcode = last ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
  request.wr.rdma.remote_addr = where.address + written;
  request.wr.rdma.rkey = where.key;
  if (last) {
    const auto segments = static_cast<std::uint32_t>(written / terms_.segment_bytes);
    request.imm_data = htonl(segments << kSlotBits | wire::slot_of(frame.header().sequence).index);
    spend_credit();
  }
  if (!post(request, gather, lent, false)) return false;
  frame.advance(from + bytes - frame.sent());
  return true;
}

bool RdmaSender::post(ibv_send_wr& request, const Gather& gather, Memory* lent, bool signalled) noexcept {
  std::array<ibv_sge, kGatherMax> pieces;
  std::uint32_t bytes = 0;
  const std::uint32_t lent_key = gather.lends() ? lent->registration(queue_pair_.device())->local_key() : 0;
  for (const Piece& piece : gather.pieces()) {
    const std::uint32_t key = piece.lent ? lent_key : queue_pair_.local_key();
    pieces[static_cast<std::size_t>(request.num_sge++)] = {reinterpret_cast<std::uintptr_t>(piece.base), piece.bytes, key};
    bytes += piece.bytes;
  }
  request.wr_id = posted_;
  request.sg_list = pieces.data();
  signalled = signalled || gather.lends() || posted_ % kSignalEvery == kSignalEvery - 1;
  if (signalled) request.send_flags |= IBV_SEND_SIGNALED;
  if (!gather.lends() && bytes <= queue_pair_.inline_bytes()) request.send_flags |= IBV_SEND_INLINE;
  if (gather.lends()) lent->lend();
  ibv_send_wr* bad = nullptr;
  if (ibv_post_send(queue_pair_.get(), &request, &bad) != 0) {
    if (gather.lends()) lent->give_back();
    fault_.broken_wire(kNotTaken);
    return false;
  }
  if (gather.lends()) lent_[posted_ % kSendSlots] = lent->shared_from_this();
  ++posted_;
  unseen_bytes_ = request.opcode == IBV_WR_RDMA_WRITE ? unseen_bytes_ + bytes : 0;
  if (signalled) signalled_ = posted_;
  return true;
}

void RdmaSender::take_completions() noexcept {
  std::array<ibv_wc, kBatch> batch;
  for (int count = kBatch; count == static_cast<int>(kBatch);) {
    count = queue_pair_.sends().poll(batch);
    for (int i = 0; i < count; ++i) {
      const ibv_wc& done = batch[static_cast<std::size_t>(i)];
      const bool flushed = done.status == IBV_WC_WR_FLUSH_ERR && stopped_.load(std::memory_order_acquire);
      if (done.status != IBV_WC_SUCCESS && !flushed) fault_.broken_wire(completion_clause(done.status));
      complete_through(done.wr_id);
    }
    if (count < 0) fault_.broken_wire("this device lost its completions of sends");
  }
}

void RdmaSender::complete_through(std::uint64_t number) noexcept {
  for (; done_ <= number && done_ < posted_; ++done_) {
    const std::shared_ptr<Memory> lent = std::move(lent_[done_ % kSendSlots]);
    if (lent) lent->give_back();
  }
}

void RdmaSender::reap() noexcept {
  const std::scoped_lock lock(mutex_);
  take_completions();
}

bool RdmaSender::credited(std::uint32_t receives) noexcept {
  if (receives > terms_.peer_receives) return false;
  // Sending only lowers it, so a sum above the peer's receives was never possible.
  return credits_.fetch_add(receives, std::memory_order_acq_rel) + receives <= terms_.peer_receives;
}

std::uint32_t RdmaSender::take_untold() noexcept {
  const std::uint32_t receives = untold_.exchange(0, std::memory_order_acq_rel);
  promised_.fetch_add(receives, std::memory_order_acq_rel);
  return receives;
}

void RdmaSender::tell_now() noexcept {
  const std::scoped_lock lock(mutex_);
  if (untold_.load(std::memory_order_acquire) < kTellAt || ready(0, true) != Progress::done) return;
  ibv_send_wr request{};
  request.opcode = IBV_WR_SEND_WITH_IMM;
  request.imm_data = htonl(take_untold());
  spend_credit();
  static_cast<void>(post(request, Gather({}, nullptr, 1), nullptr, false));
}

bool RdmaSender::acknowledged() noexcept {
  const std::scoped_lock lock(mutex_);
  take_completions();
  return done_ >= signalled_ || fault_.any();
}

Nanoseconds RdmaSender::goodbye_said() noexcept {
  const std::scoped_lock lock(mutex_);
  return goodbye_ > done_ ? goodbye_said_ : 0;
}

void RdmaSender::wait_acknowledged(int control, Nanoseconds until) noexcept {
  CompletionQueue& sends = queue_pair_.sends();
  while (!acknowledged() && sends.ask_event() && !acknowledged()) {
    pollfd entries[2] = {{sends.descriptor(), POLLIN, 0}, {control, POLLRDHUP, 0}};
    const timespec left = remaining(until);
    static_cast<void>(::ppoll(entries, 2, &left, nullptr));
    if (entries[1].revents != 0 || now_ns() >= until) return;
    static_cast<void>(sends.take_event());
  }
}

void RdmaSender::settle(Nanoseconds until) noexcept {
  for (;;) {
    {
      const std::scoped_lock lock(mutex_);
      take_completions();
      if (done_ >= signalled_) return;
    }
    if (now_ns() >= until) return;
    ::sched_yield();
  }
}

void RdmaSender::give_all_back() noexcept {
  const std::scoped_lock lock(mutex_);
  if (posted_ > 0) complete_through(posted_ - 1);
}

}  // namespace ofl

#endif
