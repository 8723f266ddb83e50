#include "client.hpp"

#include <new>

#include <poll.h>
#include <sys/eventfd.h>

#include "process.hpp"

namespace ofl {

using wire::FrameHeader;
using wire::FrameType;

// A caller inside the client.  `close` waits until all have left, so that nobody polls a descriptor that is gone.
class Client::Use {
 public:
  explicit Use(Client& client) noexcept : client_(client) {
    const std::scoped_lock lock(client.state_mutex_);
    inside_ = !client.closed_;
    if (inside_) ++client.users_;
  }
  ~Use() {
    if (!inside_) return;
    const std::scoped_lock lock(client_.state_mutex_);
    if (--client_.users_ == 0 && client_.closed_) client_.state_changed_.notify_all();
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  explicit operator bool() const noexcept { return inside_; }

 private:
  Client& client_;
  bool inside_ = false;
};

Client::Client(std::unique_ptr<Channel> channel, const ClientOptions& options, const Agreement& agreement)
    : channel_(std::move(channel)),
      agreement_(agreement),
      heartbeat_(options.heartbeat),
      loss_(options.loss),
      fork_generation_(fork_generation()),
      arena_(new std::byte[wire::kSlots * kSlotBytes]),
      region_(channel_->register_memory({arena_.get(), wire::kSlots * kSlotBytes})),
      last_sent_(now_ns()),
      last_heard_(now_ns()),
      wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (!wake_.valid()) throw std::bad_alloc();
  keeper_ = start_quiet_thread([this] { keep(); });
}

Client::~Client() { close(); }

bool Client::foreign() const noexcept { return fork_generation_ != fork_generation(); }

std::byte* Client::memory_of(Call& call) noexcept {
  return call.large ? call.large.get() : region_.base + wire::slot_of(call.sequence).index * kSlotBytes;
}

Client::Call* Client::find(std::uint64_t sequence) noexcept {
  Call& call = calls_[wire::slot_of(sequence).index];
  return call.state != CallState::free && call.sequence == sequence ? &call : nullptr;
}

Status Client::open_call(std::uint64_t& sequence) {
  const std::scoped_lock lock(receive_mutex_);
  if (open_calls_ >= agreement_.calls_max) return OFL_LIMIT;
  while (calls_[wire::slot_of(next_sequence_).index].state != CallState::free) ++next_sequence_;
  sequence = next_sequence_++;
  Call& call = calls_[wire::slot_of(sequence).index];
  call.sequence = sequence;
  call.state = CallState::open;
  call.body_bytes = 0;
  ++open_calls_;
  return OFL_OK;
}

void Client::end_call(Call& call) noexcept {
  channel_->retract(memory_of(call));
  call.state = CallState::free;
  call.large.reset();
  --open_calls_;
}

Status Client::submit(std::span<const Part> parts, Nanoseconds deadline, std::uint64_t& sequence) {
  const Use use(*this);
  if (!use) return OFL_CLOSED;
  if (!alive()) return lost_status();
  std::size_t bytes = 0;
  for (const Part& part : parts) bytes += part.bytes;
  if (bytes > agreement_.frame_bytes_max) return OFL_TOO_LARGE;
  if (parts.size() > channel_->capabilities().parts_max) return OFL_INVALID;
  Status status = open_call(sequence);
  if (status != OFL_OK) return status;
  Outgoing frame(wire::make_header(FrameType::request, sequence, bytes), parts);
  status = send_request(frame, deadline);
  if (status != OFL_OK) {
    const std::scoped_lock lock(receive_mutex_);
    if (Call* call = find(sequence)) end_call(*call);
  }
  return status;
}

Status Client::send_request(Outgoing& frame, Nanoseconds deadline) {
  const std::scoped_lock lock(send_mutex_);
  for (;;) {
    Progress progress = outbox_.flush(*channel_);
    if (progress == Progress::done) progress = channel_->send(frame);
    if (progress == Progress::done) break;
    if (progress != Progress::blocked) {
      lose("the connection was reset while sending");
      return lost_status();
    }
    const Status status = wait_sendable(deadline);
    if (status == OFL_OK || (status == OFL_INTERRUPTED && frame.sent() > 0)) continue;
    if (frame.sent() > 0) lose("a request was cut off by its deadline");
    return status;
  }
  last_sent_.store(now_ns(), std::memory_order_relaxed);
  return OFL_OK;
}

// Waits for room, and keeps reading meanwhile: a peer that cannot send replies would not read requests either.
Status Client::wait_sendable(Nanoseconds deadline) {
  if (!alive()) return lost_status();
  pollfd entry{channel_->descriptor(), POLLOUT | POLLIN, 0};
  const timespec left = remaining(deadline);
  const int ready = ::ppoll(&entry, 1, &left, nullptr);
  if (ready < 0) return OFL_INTERRUPTED;
  if (ready == 0) return OFL_DEADLINE;
  const std::scoped_lock lock(receive_mutex_);
  if ((entry.revents & ~POLLOUT) != 0 && !waiting_ && !receive_now()) return lost_status();
  return (entry.revents & POLLOUT) == 0 && now_ns() >= deadline ? OFL_DEADLINE : OFL_OK;
}

Status Client::wait(std::uint64_t sequence, Nanoseconds deadline, std::span<const std::byte>& body) {
  const Use use(*this);
  if (!use) return OFL_CLOSED;
  std::unique_lock lock(receive_mutex_);
  if (waiting_) return OFL_BUSY;
  // One look, one wait, one look: whoever calls repeats it, so that signal handlers run in between.
  for (bool waited = false, expired = false;; waited = true) {
    Call* call = find(sequence);
    if (call == nullptr) return OFL_UNKNOWN;
    if (call->state == CallState::done) {
      body = {memory_of(*call), call->body_bytes};
      taken_ = std::move(call->large);
      call->state = CallState::free;
      --open_calls_;
      return OFL_OK;
    }
    if (!alive()) return lost_status();
    if (waited) return expired ? OFL_DEADLINE : OFL_INTERRUPTED;
    waiting_ = true;
    lock.unlock();
    const Wait wait = channel_->wait_readable(deadline);
    lock.lock();
    waiting_ = false;
    expired = wait == Wait::deadline;
    // A reply that is there counts even if the deadline passed, and a flood of other frames does not hold us here.
    if (wait == Wait::ready && receive_now() && call->state != CallState::done) expired = now_ns() >= deadline;
  }
}

Status Client::cancel(std::uint64_t sequence) {
  const Use use(*this);
  if (!use) return OFL_CLOSED;
  {
    const std::scoped_lock lock(receive_mutex_);
    Call* call = find(sequence);
    if (call == nullptr) return OFL_UNKNOWN;
    const bool answered = call->state == CallState::done;
    end_call(*call);
    if (answered) return OFL_OK;
  }
  if (alive()) send_control(FrameType::cancel, sequence);
  return OFL_OK;
}

void Client::send_control(FrameType type, std::uint64_t sequence) {
  const std::scoped_lock lock(send_mutex_);
  outbox_.append(Outgoing(wire::make_header(type, sequence, 0), {}));
  last_sent_.store(now_ns(), std::memory_order_relaxed);
  if (outbox_.flush(*channel_) == Progress::failed) lose("the connection was reset while sending");
}

Landing Client::landing(const FrameHeader& header) noexcept {
  switch (static_cast<FrameType>(header.type)) {
    case FrameType::reply:
      return reply_landing(header);
    case FrameType::close:
      return {reinterpret_cast<std::byte*>(close_text_), nullptr};
    case FrameType::heartbeat:
      return {};
    default:
      return {nullptr, "type is one that a server never sends now"};
  }
}

Landing Client::reply_landing(const FrameHeader& header) noexcept {
  if (header.body_bytes > agreement_.frame_bytes_max) return {nullptr, "body_bytes is over the agreed limit"};
  if (header.sequence >= next_sequence_) return {nullptr, "sequence of a reply was never used"};
  Call* call = find(header.sequence);
  if (call == nullptr) return {};  // a late reply: the call was cancelled
  if (call->state == CallState::done) return {nullptr, "sequence of a reply was answered already"};
  if (header.body_bytes > kSlotBytes) {
    call->large.reset(new (std::nothrow) std::byte[header.body_bytes]);
    if (!call->large) return {nullptr, "body_bytes is more than this host has memory for"};
  }
  call->body_bytes = header.body_bytes;
  return {memory_of(*call), nullptr};
}

void Client::completed(const FrameHeader& header) noexcept {
  const auto type = static_cast<FrameType>(header.type);
  if (type == FrameType::close) {
    lose("the peer closed the connection: " + wire::printable({close_text_, header.body_bytes}));
  } else if (type == FrameType::reply) {
    if (Call* call = find(header.sequence)) call->state = CallState::done;
  }
}

bool Client::receive_now() noexcept {
  const Progress progress = channel_->receive(*this, kReceiveBudget);
  if (channel_->bytes_received() != bytes_seen_) {
    bytes_seen_ = channel_->bytes_received();
    last_heard_.store(now_ns(), std::memory_order_relaxed);
  }
  if (progress == Progress::closed) lose("the peer closed the connection without a word");
  if (progress == Progress::failed) lose(std::string("the connection broke: ") + channel_->fault());
  return alive();
}

void Client::lose(const std::string& reason) noexcept {
  const std::scoped_lock lock(state_mutex_);
  if (lost_.load(std::memory_order_relaxed)) return;
  reason_ = reason;
  lost_.store(true, std::memory_order_release);
  channel_->shut_down();
}

Status Client::lost_status() noexcept {
  const std::scoped_lock lock(state_mutex_);
  return closed_ ? OFL_CLOSED : OFL_LOST;
}

std::string Client::reason() {
  const std::scoped_lock lock(state_mutex_);
  return reason_;
}

}  // namespace ofl
