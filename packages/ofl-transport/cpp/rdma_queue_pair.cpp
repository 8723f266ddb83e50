#include "rdma_queue_pair.hpp"

#ifdef OFL_VERBS

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include "clock.hpp"
#include "process.hpp"
#include "rdma_memlock.hpp"

namespace ofl {

namespace {

constexpr std::size_t kMemoryBytes = std::size_t{kReceives + kSendSlots} * kSegmentBytes;
constexpr std::uint64_t kLastReceive = ~std::uint64_t{0};  // posted by the fence
constexpr Nanoseconds kFence = 200 * kMillisecond;         // a device that takes longer is reset instead
constexpr std::uint32_t kPacketSequenceMask = 0xFFFFFF;
constexpr std::array<std::uint32_t, 4> kInlineSteps = {kInlineBytes, 128, 64, 0};

ibv_mtu mtu_of(std::uint32_t bytes) noexcept {
  if (bytes >= 4096) return IBV_MTU_4096;
  if (bytes >= 2048) return IBV_MTU_2048;
  if (bytes >= 1024) return IBV_MTU_1024;
  return bytes >= 512 ? IBV_MTU_512 : IBV_MTU_256;
}

}  // namespace

Outcome CompletionQueue::create(const RdmaDevice& device, std::uint32_t completions) {
  verbs_ = &device.verbs();
  events_ = UniqueEvents(verbs_->create_comp_channel(device.context()), {verbs_});
  if (!events_) return failure(OFL_SYSTEM, "cannot make an event channel on " + device.name() + ": " + errno_text(errno));
  static_cast<void>(::fcntl(events_->fd, F_SETFL, ::fcntl(events_->fd, F_GETFL) | O_NONBLOCK));
  const auto depth = static_cast<int>(completions);
  queue_ = UniqueCompletions(verbs_->create_cq(device.context(), depth, nullptr, events_.get(), 0), {verbs_});
  if (queue_) return {};
  return failure(OFL_SYSTEM, "cannot make a completion queue of " + std::to_string(completions) + " on " + device.name() +
                                 ": " + errno_text(errno));
}

bool CompletionQueue::ask_event() noexcept {
  const std::scoped_lock lock(mutex_);
  if (asked_.load(std::memory_order_relaxed)) return true;
  if (ibv_req_notify_cq(queue_.get(), 0) != 0) return false;
  asked_.store(true, std::memory_order_release);
  return true;
}

bool CompletionQueue::take_event() noexcept {
  if (!asked_.load(std::memory_order_acquire)) return false;
  const std::scoped_lock lock(mutex_);
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  if (!asked_.load(std::memory_order_relaxed) || verbs_->get_cq_event(events_.get(), &queue, &context) != 0) return false;
  asked_.store(false, std::memory_order_release);
  verbs_->ack_cq_events(queue, 1);
  return true;
}

void CompletionQueue::leave_to_parent() noexcept {
  static_cast<void>(queue_.release());
  if (const ibv_comp_channel* const events = events_.release()) ::close(events->fd);
}

QueuePair::QueuePair(const RdmaPort& port)
    : port_(port),
      verbs_(port.device->verbs()),
      packet_sequence_(static_cast<std::uint32_t>(random_nonce()) & kPacketSequenceMask),
      region_(nullptr, {&verbs_}),
      queue_pair_(nullptr, {&verbs_}) {}

QueuePair::~QueuePair() {
  if (device().foreign()) {
    static_cast<void>(queue_pair_.release());
    static_cast<void>(region_.release());
    sends_.leave_to_parent();
    receives_.leave_to_parent();
    return;  // the memory may be absent here; it ends with the process
  }
  if (!destroy()) {
    static_cast<void>(queue_pair_.release());
    static_cast<void>(region_.release());
    return;  // the device may still use the memory, so nobody else gets it; it ends with the process
  }
  region_.reset();
  if (!memory_.empty()) ::munmap(memory_.data(), memory_.size());
}

Outcome QueuePair::fail(const char* step, int error) const {
  const std::string hint = error == ENOMEM ? memlock_hint(locked_memory()) : std::string();
  return failure(OFL_SYSTEM, "cannot " + std::string(step) + " on " + device().name() + ": " + errno_text(error) + hint);
}

Outcome QueuePair::create(const RdmaPort& port, Role role, std::unique_ptr<QueuePair>& made) {
  std::unique_ptr<QueuePair> fresh(new QueuePair(port));
  Outcome outcome = fresh->allocate();
  if (outcome) outcome = fresh->create_queue_pair();
  if (outcome) outcome = fresh->enter_init(role);
  if (outcome) made = std::move(fresh);
  return outcome;
}

Outcome QueuePair::allocate() {
  void* base = ::mmap(nullptr, kMemoryBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return fail("allocate memory for a connection", errno);
  memory_ = {static_cast<std::byte*>(base), kMemoryBytes};
  return device().register_memory(memory_, IBV_ACCESS_LOCAL_WRITE, region_);
}

Outcome QueuePair::create_queue_pair() {
  Outcome outcome = sends_.create(device(), kSendSlots);
  if (outcome) outcome = receives_.create(device(), kReceives + 1);
  if (!outcome) return outcome;
  pieces_max_ = std::clamp(static_cast<std::uint32_t>(device().limits().max_sge), 1U, kGatherMax);
  ibv_qp_init_attr wanted{};
  wanted.send_cq = sends_.get();
  wanted.recv_cq = receives_.get();
  wanted.qp_type = IBV_QPT_RC;
  wanted.sq_sig_all = 0;
  for (const std::uint32_t inline_bytes : kInlineSteps) {
    wanted.cap = {kSendSlots, kReceives + 1, pieces_max_, 1, inline_bytes};
    queue_pair_.reset(verbs_.create_qp(device().domain(), &wanted));
    if (queue_pair_) {
      inline_bytes_ = std::min(wanted.cap.max_inline_data, kSegmentBytes);
      return {};
    }
    if (errno != EINVAL && errno != ENOMEM) break;
  }
  return fail("make a queue pair", errno);
}

Outcome QueuePair::enter_init(Role role) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.pkey_index = 0;
  attributes.port_num = port_.choice.entry.port;
  attributes.qp_access_flags = role == Role::client ? IBV_ACCESS_REMOTE_WRITE : 0;
  const int error = verbs_.modify_qp(get(), &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (error != 0) return fail("set up a queue pair", error);
  for (std::uint32_t index = 0; index < kReceives; ++index)
    if (!post_receive(index)) return fail("post a receive", errno);
  return {};
}

bool QueuePair::post_receive(std::uint64_t index) noexcept {
  const std::span<std::byte> memory = receive(index == kLastReceive ? 0 : index);
  ibv_sge piece{reinterpret_cast<std::uintptr_t>(memory.data()), kSegmentBytes, region_->lkey};
  ibv_recv_wr request{};
  request.wr_id = index;
  request.sg_list = &piece;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  const std::scoped_lock lock(destroy_mutex_);
  const int error = queue_pair_ ? ibv_post_recv(get(), &request, &bad) : ENODEV;
  if (error != 0) errno = error;
  return error == 0;
}

wire::RdmaLinkBody QueuePair::ours() const noexcept {
  wire::RdmaLinkBody body{};
  const Gid& gid = port_.choice.entry.gid;
  std::memcpy(body.gid, gid.data(), gid.size());
  body.queue_pair = get()->qp_num;
  body.packet_sequence = packet_sequence_;
  body.receives = kReceives;
  body.segment_bytes = kSegmentBytes;
  body.mtu_bytes = port_.mtu_bytes;
  return body;
}

Outcome QueuePair::connect(const wire::RdmaLinkBody& theirs) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = mtu_of(std::min(port_.mtu_bytes, theirs.mtu_bytes));
  attributes.dest_qp_num = theirs.queue_pair;
  attributes.rq_psn = theirs.packet_sequence;
  attributes.max_dest_rd_atomic = 1;  // nobody reads; some devices refuse 0
  attributes.min_rnr_timer = kReceiverNotReadyTimer;
  attributes.ah_attr.is_global = 1;
  std::memcpy(attributes.ah_attr.grh.dgid.raw, theirs.gid, sizeof theirs.gid);
  attributes.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(port_.choice.entry.index);
  attributes.ah_attr.grh.hop_limit = kHopLimit;
  attributes.ah_attr.port_num = port_.choice.entry.port;
  int error = verbs_.modify_qp(get(), &attributes,
                               IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (error != 0) return fail("reach the peer's GID", error);
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = kAckTimeout;
  attributes.retry_cnt = kRetries;
  attributes.rnr_retry = kReceiverNotReadyRetries;
  attributes.sq_psn = packet_sequence_;
  attributes.max_rd_atomic = 1;
  error = verbs_.modify_qp(get(), &attributes,
                           IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                               IBV_QP_MAX_QP_RD_ATOMIC);
  return error == 0 ? Outcome{} : fail("make a queue pair send", error);
}

// The state alone is no proof: a write may be half way into memory while the state changes.  A receive that comes back
// flushed is one, because the device handles them in order.  So one more receive is posted, for the case that none is left.
Fence QueuePair::fence() noexcept {
  static_cast<void>(post_receive(kLastReceive));
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  bool fenced = verbs_.modify_qp(get(), &attributes, IBV_QP_STATE) == 0;
  const Nanoseconds until = now_ns() + kFence;
  std::array<ibv_wc, kBatch> batch;
  while (fenced && !flushed_.load(std::memory_order_acquire)) {
    const int count = receives_.poll(batch);
    for (int i = 0; i < count; ++i)
      if (batch[static_cast<std::size_t>(i)].status != IBV_WC_SUCCESS) saw_flush();
    if (count > 0) continue;
    if (count < 0 || now_ns() > until) fenced = false;
    ::sched_yield();
  }
  if (fenced) return Fence::flushed;
  attributes.qp_state = IBV_QPS_RESET;
  if (verbs_.modify_qp(get(), &attributes, IBV_QP_STATE) == 0) return Fence::ended;
  return destroy() ? Fence::ended : Fence::refused;
}

bool QueuePair::destroy() noexcept {
  const std::scoped_lock lock(destroy_mutex_);
  if (!queue_pair_) return true;
  if (verbs_.destroy_qp(get()) != 0) return false;
  static_cast<void>(queue_pair_.release());
  return true;
}

}  // namespace ofl

#endif
