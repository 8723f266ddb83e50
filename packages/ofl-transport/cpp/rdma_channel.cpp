#include "rdma_channel.hpp"

#ifdef OFL_VERBS

#include <algorithm>
#include <cerrno>
#include <utility>

#include <sys/epoll.h>
#include <sys/socket.h>

#include <arpa/inet.h>

namespace ofl {

namespace {

constexpr Nanoseconds kLinger = 500 * kMillisecond;   // at the end, for what was sent
constexpr Nanoseconds kGoodbye = 100 * kMillisecond;  // before a shutdown, for a close frame, from its sending on
constexpr Nanoseconds kSettle = 200 * kMillisecond;   // after it, for lent memory
constexpr std::uint32_t kPlacementSlotMask = wire::kSlots - 1;
constexpr unsigned kPlacementSlotBits = 8;

}  // namespace

Capabilities RdmaChannel::rdma_capabilities() noexcept {
  return {.parts_max = kPartsMax, .registered_memory = true, .direct_placement = true, .one_sided = true};
}

RdmaChannel::RdmaChannel(std::unique_ptr<QueuePair> queue_pair, UniqueFd control, Role role, const RdmaTerms& terms)
    : queue_pair_(std::move(queue_pair)),
      control_(std::move(control)),
      terms_(terms),
      lingers_(role == Role::client),
      sender_(*queue_pair_, fault_, terms, role == Role::client),
      events_(::epoll_create1(EPOLL_CLOEXEC)) {}

Outcome RdmaChannel::create(std::unique_ptr<QueuePair> queue_pair, UniqueFd control, Role role, const RdmaTerms& terms,
                            std::unique_ptr<Channel>& channel) {
  std::unique_ptr<RdmaChannel> fresh(new RdmaChannel(std::move(queue_pair), std::move(control), role, terms));
  Outcome outcome = fresh->open_events();
  if (!outcome) return outcome;
  if (role == Role::client) {
    // The server may not send before it knows that our queue pair is ready: this tells it.
    Outgoing hello(wire::make_header(wire::FrameType::heartbeat, 0, 0), {});
    if (fresh->send(hello) != Progress::done) return failure(OFL_LOST, "cannot send on the queue pair");
  }
  channel = std::move(fresh);
  return {};
}

Outcome RdmaChannel::open_events() {
  if (!events_.valid()) return failure(OFL_SYSTEM, "cannot make an epoll descriptor: " + errno_text(errno));
  const int members[] = {queue_pair_->receives().descriptor(), queue_pair_->sends().descriptor(), control_.get()};
  for (const int member : members) {
    epoll_event event{};
    event.events = EPOLLIN | (member == control_.get() ? EPOLLRDHUP : 0U);
    if (::epoll_ctl(events_.get(), EPOLL_CTL_ADD, member, &event) != 0)
      return failure(OFL_SYSTEM, "cannot watch a queue pair: " + errno_text(errno));
  }
  return {};
}

RdmaChannel::~RdmaChannel() {
  if (queue_pair_->device().foreign()) return;
  if (lingers_ && !down_.load(std::memory_order_acquire)) sender_.wait_acknowledged(control_.get(), now_ns() + kLinger);
  shut_down();
  if (queue_pair_->destroy()) sender_.give_all_back();
}

std::string RdmaChannel::describe() const {
  const RdmaPort& port = queue_pair_->port();
  return "rdma: " + port.choice.reason + ", MTU " + std::to_string(port.mtu_bytes) + ", segments of " +
         std::to_string(terms_.segment_bytes) + " bytes, inline up to " + std::to_string(queue_pair_->inline_bytes());
}

// What the peer says about our credits counts as soon as it is here, whether anybody reads what came with it or not.
bool RdmaChannel::fetch() noexcept {
  if (verdict_ != nullptr) return false;
  if (came_at_ > 0) {
    std::copy(came_.begin() + static_cast<std::ptrdiff_t>(came_at_), came_.begin() + static_cast<std::ptrdiff_t>(came_end_),
              came_.begin());
    came_end_ -= std::exchange(came_at_, 0);
  }
  const std::span<ibv_wc> room = std::span(came_).subspan(came_end_);
  const std::span<ibv_wc> fresh = room.first(std::min(room.size(), kBatch));
  const int count = queue_pair_->receives().poll(fresh);
  if (count < 0) fault_.broken_wire("this device lost its completions of receives");
  for (int i = 0; i < count; ++i) {
    const ibv_wc& done = fresh[static_cast<std::size_t>(i)];
    if (done.status != IBV_WC_SUCCESS) {
      queue_pair_->saw_flush();
      broke_ = true;
    } else {
      verdict_ = judge(done);
      if (verdict_ != nullptr) return false;
      if (done.opcode != IBV_WC_RECV_RDMA_WITH_IMM && done.byte_len == 0) {  // credits alone
        owing_[owed_++] = static_cast<std::uint32_t>(done.wr_id);
        continue;
      }
    }
    came_[came_end_++] = done;
  }
  return count == static_cast<int>(kBatch);
}

void RdmaChannel::fetch_all() noexcept {
  while (fetch()) {
  }
}

bool RdmaChannel::fill() noexcept {
  while (!unread() && fetch()) {
  }
  return unread();
}

// Not nullptr: the peer broke a rule, this is the clause.
const char* RdmaChannel::judge(const ibv_wc& done) noexcept {
  // Receives that are posted anew and not told of are there, but not the peer's yet.
  if (done.wr_id >= kReceives || ++arrived_ > sender_.promised()) return "more came than there were credits for";
  if (done.opcode == IBV_WC_RECV_RDMA_WITH_IMM) return nullptr;
  if ((done.wc_flags & IBV_WC_WITH_IMM) == 0) return "a segment came without its credits";
  if (!sender_.credited(ntohl(done.imm_data))) return "more credits were returned than there are";
  if (!std::exchange(heard_, true)) sender_.heard();
  return done.byte_len > terms_.segment_bytes ? "a segment is larger than the smaller of both segment_bytes" : nullptr;
}

// Between a completion and its reader stands only what must: receives are posted again when there is nothing else to do.
Progress RdmaChannel::poll(Inbox& inbox, std::size_t budget) noexcept {
  if (down_.load(std::memory_order_acquire)) return Progress::closed;
  if (!fill()) {
    if (fault_.any()) return Progress::failed;
    if (owed_ > 0) repost();
    sender_.tell();
    return Progress::blocked;
  }
  // What came before a failure of the wire still counts; what came after a broken rule does not.
  if (fault_.by_peer()) return Progress::failed;
  while (came_at_ < came_end_ && budget > 0) {
    const ibv_wc& done = came_[came_at_++];
    if (!take(done, inbox)) return down_.load(std::memory_order_acquire) ? Progress::closed : Progress::failed;
    budget -= std::min<std::size_t>(budget, std::max<std::size_t>(done.byte_len, sizeof(wire::FrameHeader)));
  }
  if (verdict_ != nullptr && came_at_ == came_end_) {
    fault_.broken_by_peer(verdict_);
    return Progress::failed;
  }
  if (owed_ >= kOwedMax) {
    repost();
    sender_.tell();
  }
  return Progress::done;
}

bool RdmaChannel::take(const ibv_wc& done, Inbox& inbox) noexcept {
  if (done.status != IBV_WC_SUCCESS) return break_off(done.status);
  const bool placed = done.opcode == IBV_WC_RECV_RDMA_WITH_IMM;
  const char* const clause = placed ? take_placement(done, inbox) : take_segment(done, inbox);
  if (clause != nullptr) {
    fault_.broken_by_peer(clause);
    return false;
  }
  owing_[owed_++] = static_cast<std::uint32_t>(done.wr_id);
  return true;
}

void RdmaChannel::repost() noexcept {
  for (std::size_t i = 0; i < owed_; ++i)
    if (!queue_pair_->post_receive(owing_[i])) fault_.broken_wire("this device did not take a receive");
  sender_.reposted(static_cast<std::uint32_t>(std::exchange(owed_, 0)));
}

const char* RdmaChannel::take_segment(const ibv_wc& done, Inbox& inbox) noexcept {
  bytes_ += done.byte_len;
  return reader_.take(queue_pair_->receive(done.wr_id).first(done.byte_len), inbox);
}

const char* RdmaChannel::take_placement(const ibv_wc& done, Inbox& inbox) noexcept {
  const std::uint32_t number = ntohl(done.imm_data);
  const std::uint64_t before = std::uint64_t{number >> kPlacementSlotBits} * terms_.segment_bytes;
  const std::uint64_t bytes = before + done.byte_len;
  bytes_ += bytes;
  return inbox.placed(number & kPlacementSlotMask, bytes);
}

bool RdmaChannel::break_off(ibv_wc_status status) noexcept {
  if (down_.load(std::memory_order_acquire)) return false;
  if (status == IBV_WC_WR_FLUSH_ERR) sender_.reap();  // the cause is a completion of a send, if there is one
  fault_.broken_wire(completion_clause(status));
  return false;
}

Progress RdmaChannel::receive(Inbox& inbox, std::size_t budget) noexcept {
  const Progress progress = poll(inbox, budget);
  if (progress != Progress::blocked) return progress;
  take_events();
  const Progress control = look_at_control();
  if (control == Progress::blocked || fault_.by_peer()) return control;
  // The peer's end waited until what it sent had arrived, so that is here by now.
  const Progress last = poll(inbox, budget);
  if (last != Progress::blocked) return last;
  if (control == Progress::failed) fault_.broken_wire(kResetFault);
  return control;
}

// Not `blocked`: how the peer ended.
Progress RdmaChannel::look_at_control() noexcept {
  char byte = 0;
  const ssize_t got = ::recv(control_.get(), &byte, 1, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return Progress::blocked;
  if (got == 0) return Progress::closed;
  if (got > 0) fault_.broken_by_peer("a byte came on the control socket, which carries nothing any more");
  return Progress::failed;
}

// Nobody will take what came before the wire broke, so that is its end.
Progress RdmaChannel::take_credits() noexcept {
  if (down_.load(std::memory_order_acquire)) return Progress::closed;
  take_events();
  fetch_all();
  if (verdict_ != nullptr) fault_.broken_by_peer(verdict_);
  if (broke_) break_off(came_[came_end_ - 1].status);
  if (fault_.any()) return Progress::failed;
  repost();
  sender_.tell();
  const Progress control = look_at_control();
  if (control == Progress::failed) fault_.broken_wire(kResetFault);
  return control;
}

// A completion may come before its event does, so an event is looked for only where one was asked for.
void RdmaChannel::take_events() noexcept {
  if (armed_ && queue_pair_->receives().take_event()) armed_ = false;
  if (!queue_pair_->sends().take_event()) return;
  if (ending_.load(std::memory_order_acquire)) end_sending();
}

bool RdmaChannel::arm(Arm what) noexcept {
  if (down_.load(std::memory_order_acquire) || fault_.any()) return false;
  take_events();
  if (!armed_) {
    if (!queue_pair_->receives().ask_event()) {
      fault_.broken_wire("this device did not arm its completion queue");
      return false;
    }
    armed_ = true;
  }
  // What stays in the queue makes no event, so nothing may that could be waited for.
  if (what == Arm::room) {
    fetch_all();
  } else {
    fill();
  }
  repost();
  sender_.tell();
  const bool something = what == Arm::all ? unread() : broke_ || verdict_ != nullptr;
  return !something && !fault_.any() && !sender_.may_go_on();
}

bool RdmaChannel::readable_now() noexcept {
  if (down_.load(std::memory_order_acquire) || fill()) return true;
  pollfd entry{control_.get(), POLLIN | POLLRDHUP, 0};
  return ::poll(&entry, 1, 0) > 0;
}

void RdmaChannel::shut_down() noexcept {
  if (queue_pair_->device().foreign()) return;
  const std::scoped_lock lock(down_mutex_);
  if (down_.load(std::memory_order_acquire)) return;
  if (const Nanoseconds said = sender_.goodbye_said(); said != 0) sender_.wait_acknowledged(control_.get(), said + kGoodbye);
  sender_.stop();
  down_.store(true, std::memory_order_release);
  switch (queue_pair_->fence()) {
    case Fence::flushed:
      sender_.settle(now_ns() + kSettle);
      break;
    case Fence::ended:
      sender_.give_all_back();
      break;
    case Fence::refused:
      break;  // what was lent stays lent
  }
  ::shutdown(control_.get(), SHUT_RDWR);
}

// The control socket must not end before the data has arrived; the last acknowledgement ends it.
void RdmaChannel::end_sending() noexcept {
  ending_.store(true, std::memory_order_release);
  if (!sender_.acknowledged() && queue_pair_->sends().ask_event() && !sender_.acknowledged()) return;
  ::shutdown(control_.get(), SHUT_WR);
}

}  // namespace ofl

#endif
