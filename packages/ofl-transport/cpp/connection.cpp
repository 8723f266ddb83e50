#include "connection.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace ofl {

using wire::FrameHeader;
using wire::FrameType;

namespace {

constexpr std::size_t kReceiveBudget = 1U << 20;  // per turn, so that one connection does not starve the others
// Far more than a client that keeps to its calls can leave unread; what lies in lent memory is bounded by this alone.
constexpr std::size_t kUnreadFramesMax = std::size_t{4} * wire::kSlots;

// Requests that the consumer has not taken, cancelled ones too: far more than a client can have open.
constexpr std::size_t kUntakenRequestsMax = std::size_t{4} * wire::kSlots;

constexpr char kUnreadReplies[] = "the client does not read its replies";
// Short enough for a string that allocates nothing.
constexpr char kNoMemory[] = "out of memory";
constexpr char kUnforeseen[] = "internal error";
constexpr char kOversized[] = "body_bytes is over the agreed limit";

}  // namespace

Connection::Connection(ServerShared& shared, std::uint64_t id, std::unique_ptr<SocketChannel> control,
                       wire::Transport listener, Address address, std::string peer, Nanoseconds now)
    : shared_(shared),
      id_(id),
      listener_(listener),
      address_(address),
      peer_(std::move(peer)),
      control_(control.get()),
      channel_(std::move(control)),
      last_heard_(now),
      last_sent_(now),
      phase_ends_(now + shared.options.handshake) {}

bool Connection::end(std::string_view reason) noexcept {
  if (!end_reason_.empty()) return false;
  // Cutting a client off looks like a reset from here on; what it did comes first.
  if (cut_off_.load(std::memory_order_relaxed)) reason = kUnreadReplies;
  try {
    end_reason_ = reason;
  } catch (...) {
    end_reason_ = kNoMemory;
  }
  return false;
}

template <typename Function>
bool Connection::contained(Function&& function) noexcept {
  try {
    return function();
  } catch (const std::bad_alloc&) {
    return end(kNoMemory);
  } catch (...) {
    return end(kUnforeseen);
  }
}

// The stream broke: a garbled negotiation deserves a word if only the version differs, anything else is dropped.
bool Connection::end_broken() {
  const char* fault = channel_->fault();
  const Phase phase = phase_.load(std::memory_order_relaxed);
  // Refused or said goodbye to before: what comes after that is discarded, and earns no second verdict.
  if (phase == Phase::draining || phase == Phase::ended) return end(fault);
  if (fault == wire::kHeaderVersionFault && phase != Phase::open) {
    refuse(wire::RefuseCode::header_version, "this server speaks wire header version 2 only");
    return end(fault);
  }
  const bool reset = fault == kResetFault;
  if (fault == kOversized) {
    shared_.counters.add(Counter::oversized);
    disconnect(fault);
  } else if (!reset) {
    shared_.counters.add(Counter::garbage);
  }
  return end(reset ? std::string(fault) : std::string("the peer broke the framing: ") + fault);
}

bool Connection::on_readable() { return after_receiving(channel_->receive(*this, kReceiveBudget)); }

// A look that costs next to nothing when nothing came.
bool Connection::poll() {
  if (pending_.load(std::memory_order_acquire) && !on_writable()) return false;
  if (!reading_.load(std::memory_order_acquire)) return true;
  return after_receiving(channel_->poll(*this, kReceiveBudget));
}

bool Connection::after_receiving(Progress progress) noexcept {
  return contained([&] { return judge_received(progress); });
}

bool Connection::judge_received(Progress progress) {
  const std::uint64_t bytes = channel_->bytes_received() - bytes_seen_;
  if (bytes > 0) {
    bytes_seen_ += bytes;
    shared_.counters.add_as_leader(Counter::bytes_in, bytes);
    last_heard_ = completed_at_ != 0 ? std::exchange(completed_at_, 0) : coarse_now_ns();
    if (!channel_->mid_frame()) {
      frame_begun_ = 0;
    } else if (frame_begun_ == 0 || frames_seen_ != frames_) {
      frame_begun_ = last_heard_;
    }
    frames_seen_ = frames_;
  }
  if (!end_reason_.empty()) return false;
  if (goodbye_) return end("the client said goodbye");
  if (progress == Progress::closed) return end("the client closed the connection");
  if (progress == Progress::failed) return end_broken();
  return linked_ ? take_over() : true;
}

bool Connection::on_writable() {
  // While we read no requests, room must still come.
  if (!reading_.load(std::memory_order_acquire) && !after_receiving(channel_->take_credits())) return false;
  const std::scoped_lock lock(mutex_);
  const Progress progress = outbox_.flush(*channel_);
  if (progress == Progress::failed) return end(kResetFault);
  last_sent_ = now_ns();
  pending_.store(!outbox_.empty(), std::memory_order_release);
  if (progress == Progress::done && phase_ == Phase::draining) channel_->end_sending();
  return true;
}

bool Connection::check_time(Nanoseconds now, bool forgive_silence) noexcept {
  return contained([&] { return judge_time(now, forgive_silence); });
}

bool Connection::judge_time(Nanoseconds now, bool forgive_silence) {
  const std::scoped_lock lock(mutex_);
  if (cut_off_) return end(kUnreadReplies);
  if (phase_ != Phase::open) {
    if (now < phase_ends_) return true;
    if (phase_ != Phase::draining) shared_.counters.add(Counter::handshake_timeouts);
    return end("the connection did not negotiate in time");
  }
  if (now - last_sent_ >= heartbeat_ / 2 && outbox_.empty()) say_locked(FrameType::heartbeat, {});
  // While we do not read, the peer cannot show that it lives or finish a frame.
  if (forgive_silence || !reading_.load(std::memory_order_relaxed)) {
    last_heard_ = now;
    if (frame_begun_ != 0) frame_begun_ = now;
    return true;
  }
  const bool silent = now - last_heard_ - coarse_tick() > loss_ && !channel_->readable_now();
  const bool stuck = frame_begun_ != 0 && now - frame_begun_ > shared_.options.frame;
  if (silent || stuck) shared_.counters.add(Counter::lost);
  if (silent) return end("no sign of life from the client for " + std::to_string(loss_ / kMillisecond) + " ms");
  return stuck ? end("a frame was begun and not finished in time") : true;
}

Nanoseconds Connection::due(Nanoseconds now) {
  const std::scoped_lock lock(mutex_);
  return phase_ == Phase::open ? now + heartbeat_ / 2 : phase_ends_;
}

bool Connection::unopened() { return phase_.load(std::memory_order_relaxed) != Phase::open; }

Interest Connection::interest() {
  return {.read = reading_.load(std::memory_order_acquire), .write = pending_.load(std::memory_order_acquire)};
}

std::uint32_t Connection::epoll_events(const Interest& interest) const noexcept {
  const int events = (interest.read ? POLLIN : 0) | (interest.write ? channel_->room_events() : 0);
  return static_cast<std::uint32_t>(events);  // the same bits for poll and epoll
}

Landing Connection::landing(const FrameHeader& header) noexcept {
  if (!end_reason_.empty()) return {};  // judged already; more came in the same read
  const auto type = static_cast<FrameType>(header.type);
  switch (phase_.load(std::memory_order_relaxed)) {
    case Phase::draining:
    case Phase::ended:
      return {};
    case Phase::negotiating:
      if (type != FrameType::connect) return {nullptr, "type of the first frame is not connect"};
      return {small_.data(), nullptr};
    case Phase::proving:
      if (type != FrameType::proof) return {nullptr, "type of the frame after a challenge is not proof"};
      return {small_.data(), nullptr};
    case Phase::linking:
      if (type != FrameType::link || linked_) return {nullptr, "type of the frame after accept is not link"};
      return {small_.data(), nullptr};
    case Phase::open:
      break;
  }
  switch (type) {
    case FrameType::request:
      return request_landing(header);
    case FrameType::cancel:
    case FrameType::heartbeat:
    case FrameType::close:
      return {};
    default:
      return {nullptr, "type is one that a client never sends now"};
  }
}

Landing Connection::request_landing(const FrameHeader& header) noexcept {
  const bool placed = (header.flags & wire::kPlaced) != 0;
  const std::uint32_t ahead = placed ? sizeof(wire::PlacementRecord) : 0;
  if (header.body_bytes - ahead > frame_bytes_max_) return {nullptr, kOversized};
  if (!open_[wire::slot_of(header.sequence).index].is(0))
    return {nullptr, "sequence names a slot that is in use"};
  if (open_calls_.load(std::memory_order_relaxed) >= shared_.options.calls_max)
    return {nullptr, "more calls are open than were agreed on"};
  body_ = shared_.small_body(header.body_bytes - ahead);
  if (!body_.memory) return {nullptr, "body_bytes is more than this host has memory for"};
  return {body_.memory.get() - ahead, nullptr};
}

void Connection::completed(const FrameHeader& header) noexcept {
  ++frames_;
  if (!end_reason_.empty()) return;
  contained([&] {
    take_frame(header);
    return true;
  });
}

void Connection::take_frame(const FrameHeader& header) {
  switch (phase_.load(std::memory_order_relaxed)) {
    case Phase::negotiating:
      return negotiate();
    case Phase::proving:
      return prove();
    case Phase::linking:
      return link(header.body_bytes);
    case Phase::draining:
    case Phase::ended:
      return;
    case Phase::open:
      break;
  }
  switch (static_cast<FrameType>(header.type)) {
    case FrameType::request:
      return request_completed(header);
    case FrameType::cancel:
      return cancel_completed(header);
    case FrameType::close:
      goodbye_ = true;
      return;
    default:
      return;
  }
}

void Connection::request_completed(const FrameHeader& header) {
  shared_.counters.add_as_leader(Counter::requests);
  std::optional<wire::PlacementRecord> where;
  if ((header.flags & wire::kPlaced) != 0)
    std::memcpy(&where.emplace(), body_.memory.get() - sizeof(wire::PlacementRecord), sizeof *where);
  Event queued;
  const bool direct = shared_.direct_state == ServerShared::Direct::empty && shared_.events.size() == 0;
  Event& event = direct ? shared_.direct : queued;
  event.kind = OFL_EVENT_REQUEST;
  event.connection = id_;
  event.sequence = header.sequence;
  event.received = completed_at_ = now_ns();
  event.reply_bytes_max = room_of(where);
  event.body = std::move(body_);
  open_[wire::slot_of(header.sequence).index].begin(header.sequence, where);
  open_calls_.fetch_add(1, std::memory_order_relaxed);
  if (direct) {
    shared_.direct_from = this;
    shared_.direct_state = ServerShared::Direct::full;
  } else {
    enqueue(std::move(queued));
  }
}

// For a consumer who is away, or behind: too much of that stops the reading.
void Connection::enqueue(Event&& event) {
  event.from = shared_from_this();
  {
    const std::scoped_lock lock(mutex_);
    queued_bytes_ += event.body.bytes;
    ++queued_requests_;
    const bool many = queued_bytes_ > shared_.options.queue_bytes_max || queued_requests_ > kUntakenRequestsMax;
    if (many && reading_.load(std::memory_order_relaxed)) {
      reading_.store(false, std::memory_order_release);
      shared_.counters.add(Counter::throttled);
    }
  }
  shared_.events.push(std::move(event));
}

void Connection::cancel_completed(const FrameHeader& header) {
  const std::scoped_lock lock(mutex_);
  OpenCall& call = open_[wire::slot_of(header.sequence).index];
  if (!call.is(header.sequence)) return;  // answered while the cancel was on its way
  const bool placed = call.where.has_value();
  call.end();
  --open_calls_;
  shared_.counters.add(Counter::cancels);
  // The client may use the memory again once it knows that nothing will be written there.
  if (placed) say_locked(FrameType::cancelled, {}, header.sequence);
}

bool Connection::take_request(std::uint64_t sequence, std::size_t bytes, bool& resumed) {
  const std::scoped_lock lock(mutex_);
  queued_bytes_ -= bytes;
  --queued_requests_;
  const bool few = queued_bytes_ <= shared_.options.queue_bytes_max / 2 && queued_requests_ <= kUntakenRequestsMax / 2;
  if (few && !reading_.load(std::memory_order_relaxed)) {
    reading_.store(true, std::memory_order_release);
    resumed = true;
  }
  return holds(sequence);
}

std::uint32_t Connection::room_of(const std::optional<wire::PlacementRecord>& where) const noexcept {
  return where ? std::min(where->bytes, frame_bytes_max_) : frame_bytes_max_;
}

void Connection::reap() {
  const std::scoped_lock lock(mutex_);
  if (phase_ == Phase::open) channel_->reap();
}

// With the server, which registers with the host first; or by somebody else with what carries this connection.
bool Connection::registered(const Memory& lent) const noexcept {
  if (lent.registration(host_registrar()) != nullptr) return true;
  const Registrar* const device = channel_->registrar();
  return device != nullptr && lent.registration(*device) != nullptr;
}

Status Connection::reply(std::uint64_t sequence, std::span<const Part> parts, Memory* lent) {
  std::size_t bytes = 0;
  for (const Part& part : parts) bytes += part.bytes;
  if (parts.size() > kPartsMax) return OFL_INVALID;
  const std::scoped_lock lock(mutex_);
  OpenCall& call = open_[wire::slot_of(sequence).index];
  if (phase_ != Phase::open || sequence == 0 || !call.is(sequence)) return OFL_UNKNOWN;
  if (lent != nullptr && !registered(*lent)) return OFL_INVALID;
  if (bytes > room_of(call.where)) return OFL_TOO_LARGE;
  const bool placed = call.where.has_value();
  const wire::PlacementRecord where = placed ? *call.where : wire::PlacementRecord{};
  call.end();
  open_calls_.fetch_sub(1, std::memory_order_relaxed);
  Outgoing frame(wire::make_header(FrameType::reply, sequence, bytes), parts, lent);
  shared_.counters.add(Counter::replies);  // before the client can see it
  return send_locked(frame, placed ? &where : nullptr) == Progress::failed ? OFL_UNKNOWN : OFL_OK;
}

// Sends now what the wire takes, and keeps the rest for the loop.
Progress Connection::send_locked(Outgoing& frame, const wire::PlacementRecord* where) {
  Progress progress = Progress::blocked;
  if (outbox_.empty()) progress = where ? channel_->place(*where, frame) : channel_->send(frame);
  shared_.counters.add(Counter::bytes_out, frame.size());
  last_sent_ = coarse_now_ns();
  if (progress == Progress::blocked) {
    try {
      outbox_.append(frame, where != nullptr ? std::optional(*where) : std::nullopt);
      pending_.store(true, std::memory_order_release);
    } catch (const std::bad_alloc&) {
      progress = Progress::failed;  // half a frame cannot be taken back, and the next one would pass for its rest
    }
  }
  if (outbox_.copied_bytes() > shared_.options.queue_bytes_max + frame_bytes_max_ || outbox_.size() > kUnreadFramesMax)
    cut_off_ = true;
  // The loop finds the broken or cut off connection by its hang-up.
  if (progress == Progress::failed || cut_off_) channel_->shut_down();
  return progress;
}

void Connection::say_locked(FrameType type, std::span<const Part> parts, std::uint64_t sequence) {
  std::size_t bytes = 0;
  for (const Part& part : parts) bytes += part.bytes;
  Outgoing frame(wire::make_header(type, sequence, bytes), parts);
  send_locked(frame);
}

}  // namespace ofl
