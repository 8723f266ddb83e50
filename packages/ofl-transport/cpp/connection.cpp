#include "connection.hpp"

namespace ofl {

using wire::FrameHeader;
using wire::FrameType;

namespace {

constexpr std::size_t kReceiveBudget = 1U << 20;  // per turn, so that one connection does not starve the others
constexpr Nanoseconds kDrain = kSecond;

constexpr char kOversized[] = "body_bytes is over the agreed limit";

}  // namespace

Connection::Connection(ServerShared& shared, std::uint64_t id, std::unique_ptr<Channel> channel, std::string peer,
                       Nanoseconds now)
    : shared_(shared),
      id_(id),
      channel_(std::move(channel)),
      peer_(std::move(peer)),
      last_heard_(now),
      last_sent_(now),
      phase_ends_(now + shared.options.handshake) {}

bool Connection::end(const std::string& reason) {
  if (end_reason_.empty()) end_reason_ = reason;
  return false;
}

// The stream broke: a garbled negotiation deserves a word if only the version differs, anything else is dropped.
bool Connection::end_broken() {
  const char* fault = channel_->fault();
  const bool negotiating = unopened();
  if (fault == wire::kHeaderVersionFault && negotiating) {
    refuse(wire::RefuseCode::header_version, "this server speaks wire header version 1 only");
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

bool Connection::on_readable() {
  const bool was_mid_frame = frame_begun_ != 0;
  const std::uint64_t frames_before = frames_;
  const Progress progress = channel_->receive(*this, kReceiveBudget);
  const std::uint64_t bytes = channel_->bytes_received() - bytes_seen_;
  if (bytes > 0) {
    bytes_seen_ += bytes;
    shared_.counters.add(Counter::bytes_in, bytes);
    last_heard_ = now_ns();
  }
  if (!channel_->mid_frame()) {
    frame_begun_ = 0;
  } else if (!was_mid_frame || frames_ != frames_before) {
    frame_begun_ = last_heard_;
  }
  if (!end_reason_.empty()) return false;
  if (goodbye_) return end("the client said goodbye");
  if (progress == Progress::closed) return end("the client closed the connection");
  return progress == Progress::failed ? end_broken() : true;
}

bool Connection::on_writable() {
  const std::scoped_lock lock(mutex_);
  const Progress progress = outbox_.flush(*channel_);
  if (progress == Progress::failed) return end(kResetFault);
  last_sent_ = now_ns();
  if (progress == Progress::done && phase_ == Phase::draining) channel_->end_sending();
  return true;
}

bool Connection::check_time(Nanoseconds now, bool forgive_silence) {
  const std::scoped_lock lock(mutex_);
  if (cut_off_) return end("the client does not read its replies");
  if (phase_ != Phase::open) {
    if (now < phase_ends_) return true;
    if (phase_ == Phase::negotiating) shared_.counters.add(Counter::handshake_timeouts);
    return end("the connection did not negotiate in time");
  }
  if (now - last_sent_ >= heartbeat_ / 2 && outbox_.empty()) say_locked(FrameType::heartbeat, {});
  // While we do not read, the peer cannot show that it lives or finish a frame.
  if (forgive_silence || !reading_locked()) {
    last_heard_ = now;
    if (frame_begun_ != 0) frame_begun_ = now;
    return true;
  }
  const bool silent = now - last_heard_ > loss_ && !channel_->readable_now();
  const bool stuck = frame_begun_ != 0 && now - frame_begun_ > shared_.options.frame;
  if (silent || stuck) shared_.counters.add(Counter::lost);
  if (silent) return end("no sign of life from the client for " + std::to_string(loss_ / kMillisecond) + " ms");
  return stuck ? end("a frame was begun and not finished in time") : true;
}

Nanoseconds Connection::due(Nanoseconds now) {
  const std::scoped_lock lock(mutex_);
  return phase_ == Phase::open ? now + heartbeat_ / 2 : phase_ends_;
}

void Connection::finish() {
  bool was_open = false;
  {
    const std::scoped_lock lock(mutex_);
    was_open = phase_ == Phase::open;
    phase_ = Phase::ended;
  }
  if (!was_open) return;
  announce_end(end_reason_);
}

void Connection::announce_end(const std::string& reason) {
  shared_.open_connections.fetch_sub(1, std::memory_order_relaxed);
  shared_.counters.add(Counter::disconnects);
  Event event;
  event.kind = OFL_EVENT_DISCONNECTED;
  event.connection = id_;
  event.received = now_ns();
  event.text = reason;
  shared_.events.push(std::move(event));
}

bool Connection::unopened() {
  const std::scoped_lock lock(mutex_);
  return phase_ != Phase::open;
}

bool Connection::reading_locked() const noexcept { return !throttled_; }

Interest Connection::interest() {
  const std::scoped_lock lock(mutex_);
  return {.read = reading_locked(), .write = !outbox_.empty()};
}

Landing Connection::landing(const FrameHeader& header) noexcept {
  Phase phase;
  {
    const std::scoped_lock lock(mutex_);
    phase = phase_;
  }
  const auto type = static_cast<FrameType>(header.type);
  if (phase == Phase::draining || phase == Phase::ended) return {};
  if (phase == Phase::negotiating) {
    if (type != FrameType::connect) return {nullptr, "type of the first frame is not connect"};
    return {small_.data(), nullptr};
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
  if (header.body_bytes > frame_bytes_max_) return {nullptr, kOversized};
  {
    const std::scoped_lock lock(mutex_);
    if (open_[wire::slot_of(header.sequence).index] != 0) return {nullptr, "sequence names a slot that is in use"};
    if (open_calls_ >= shared_.options.calls_max) return {nullptr, "more calls are open than were agreed on"};
  }
  body_ = Body::allocate(header.body_bytes);
  if (!body_.memory) return {nullptr, "body_bytes is more than this host has memory for"};
  return {body_.memory.get(), nullptr};
}

void Connection::completed(const FrameHeader& header) noexcept {
  ++frames_;
  if (unopened()) {
    if (phase_ == Phase::negotiating) negotiate();
    return;
  }
  switch (static_cast<FrameType>(header.type)) {
    case FrameType::request:
      request_completed(header);
      break;
    case FrameType::cancel: {
      const std::scoped_lock lock(mutex_);
      std::uint64_t& slot = open_[wire::slot_of(header.sequence).index];
      if (slot != header.sequence) break;  // answered while the cancel was on its way
      slot = 0;
      --open_calls_;
      shared_.counters.add(Counter::cancels);
      break;
    }
    case FrameType::close:
      goodbye_ = true;
      break;
    default:
      break;
  }
}

void Connection::request_completed(const FrameHeader& header) {
  shared_.counters.add(Counter::requests);
  Event event;
  event.kind = OFL_EVENT_REQUEST;
  event.connection = id_;
  event.sequence = header.sequence;
  event.received = now_ns();
  event.body = std::move(body_);
  {
    const std::scoped_lock lock(mutex_);
    open_[wire::slot_of(header.sequence).index] = header.sequence;
    ++open_calls_;
    queued_bytes_ += header.body_bytes;
    if (queued_bytes_ > shared_.options.queue_bytes_max && !throttled_) {
      throttled_ = true;
      shared_.counters.add(Counter::throttled);
    }
  }
  shared_.events.push(std::move(event));
}

bool Connection::take_request(std::uint64_t sequence, std::size_t bytes) {
  const std::scoped_lock lock(mutex_);
  queued_bytes_ -= bytes;
  if (queued_bytes_ <= shared_.options.queue_bytes_max / 2) throttled_ = false;
  return phase_ == Phase::open && open_[wire::slot_of(sequence).index] == sequence;
}

Status Connection::reply(std::uint64_t sequence, std::span<const Part> parts) {
  std::size_t bytes = 0;
  for (const Part& part : parts) bytes += part.bytes;
  if (parts.size() > channel_->capabilities().parts_max) return OFL_INVALID;
  const std::scoped_lock lock(mutex_);
  const wire::Slot slot = wire::slot_of(sequence);
  if (phase_ != Phase::open || sequence == 0 || open_[slot.index] != sequence) return OFL_UNKNOWN;
  if (bytes > frame_bytes_max_) return OFL_TOO_LARGE;
  open_[slot.index] = 0;
  --open_calls_;
  Outgoing frame(wire::make_header(FrameType::reply, sequence, bytes), parts);
  shared_.counters.add(Counter::replies);  // before the client can see it
  return send_locked(frame) == Progress::failed ? OFL_UNKNOWN : OFL_OK;
}

// Sends now what the wire takes, and keeps the rest for the loop.
Progress Connection::send_locked(Outgoing& frame) {
  Progress progress = outbox_.empty() ? Progress::done : Progress::blocked;
  if (progress == Progress::done) {
    progress = static_cast<FrameType>(frame.header().type) == FrameType::reply
                   ? channel_->place(wire::slot_of(frame.header().sequence), frame)
                   : channel_->send(frame);
  }
  shared_.counters.add(Counter::bytes_out, frame.size());
  last_sent_ = now_ns();
  if (progress == Progress::blocked) outbox_.append(frame);
  if (outbox_.bytes() > shared_.options.queue_bytes_max + frame_bytes_max_) cut_off_ = true;
  // The loop finds the broken or cut off connection by its hang-up.
  if (progress == Progress::failed || cut_off_) channel_->shut_down();
  return progress;
}

void Connection::say_locked(FrameType type, std::span<const Part> parts) {
  std::size_t bytes = 0;
  for (const Part& part : parts) bytes += part.bytes;
  Outgoing frame(wire::make_header(type, 0, bytes), parts);
  send_locked(frame);
}

void Connection::drain_locked(Nanoseconds now) {
  phase_ = Phase::draining;
  phase_ends_ = now + kDrain;
  throttled_ = false;
  if (outbox_.empty()) channel_->end_sending();
}

bool Connection::disconnect(const std::string& reason) {
  const std::string words = wire::printable(reason);
  {
    const std::scoped_lock lock(mutex_);
    if (phase_ != Phase::open) return false;
    const Part part{words.data(), words.size()};
    say_locked(FrameType::close, {&part, 1});
    drain_locked(now_ns());
  }
  announce_end(words);
  return true;
}

void Connection::hang_up(const std::string& reason) noexcept {
  const std::scoped_lock lock(mutex_);
  if (phase_ == Phase::open) {
    const std::string words = wire::printable(reason);
    const Part part{words.data(), words.size()};
    Outgoing frame(wire::make_header(FrameType::close, 0, words.size()), {&part, 1});
    if (outbox_.empty()) static_cast<void>(channel_->send(frame));
  }
  phase_ = Phase::ended;
  channel_->shut_down();
}

}  // namespace ofl
