// What reaches a client: where it lands, and what it ends.

#include <new>
#include <utility>

#include "client.hpp"

namespace ofl {

using wire::FrameHeader;
using wire::FrameType;

Landing Client::landing(const FrameHeader& header) noexcept {
  if (!alive()) return {};  // the peer said goodbye; more came in the same read
  switch (static_cast<FrameType>(header.type)) {
    case FrameType::reply:
      return reply_landing(header);
    case FrameType::close:
      return {close_text_, nullptr};
    case FrameType::cancelled:
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
  if (call == nullptr || call->state == CallState::quarantined) return {};  // a late reply: the call was cancelled
  if (call->state == CallState::done) return {nullptr, "sequence of a reply was answered already"};
  if (call->memory.into) {
    if (header.body_bytes > call->memory.bytes) return {nullptr, "body_bytes is over the room of its placement"};
  } else if (header.body_bytes > kSlotBytes) {
    call->large = Body::allocate(header.body_bytes);
    if (!call->large.memory) return {nullptr, "body_bytes is more than this host has memory for"};
  }
  call->body_bytes = header.body_bytes;
  return {memory_of(*call), nullptr};
}

void Client::completed(const FrameHeader& header) noexcept {
  if (!alive()) return;
  const auto type = static_cast<FrameType>(header.type);
  if (type == FrameType::close) {
    const std::span<char> text(reinterpret_cast<char*>(close_text_), header.body_bytes);
    wire::make_printable(text);
    lose(Clause("the peer closed the connection: ", std::string_view(text.data(), text.size())).text());
    return;
  }
  Call* call = header.sequence != 0 ? find(header.sequence) : nullptr;
  if (call == nullptr) return;
  if (type == FrameType::reply && call->state == CallState::open) call->state = CallState::done;
  // The peer's word that no write of this call will come, sent after any that did.
  if (type == FrameType::cancelled && call->state == CallState::quarantined) end_call(*call);
}

const char* Client::placed(std::uint32_t slot, std::uint64_t bytes) noexcept {
  if (slot >= wire::kSlots) return "a placement names a slot that does not exist";
  Call& call = calls_[slot];
  if (!call.memory.into || (call.state != CallState::open && call.state != CallState::quarantined))
    return "a placement names a slot that waits for none";
  if (bytes > call.memory.bytes) return "a placement is over the room that it was given";
  if (call.state == CallState::quarantined) {
    end_call(call);
    return nullptr;
  }
  call.body_bytes = static_cast<std::uint32_t>(bytes);
  call.state = CallState::done;
  return nullptr;
}

bool Client::receive_now(bool whole) noexcept {
  if (!alive()) return false;
  const Progress progress = whole ? channel_->receive(*this, kReceiveBudget) : channel_->poll(*this, kReceiveBudget);
  if (const std::uint64_t bytes = channel_->bytes_received(); bytes != bytes_seen_) {
    bytes_seen_ = bytes;
    last_heard_.store(coarse_now_ns(), std::memory_order_relaxed);
  }
  if (progress == Progress::closed) lose("the peer closed the connection without a word");
  if (progress == Progress::failed) lose(Clause("the connection broke: ", channel_->fault()).text());
  return alive();
}

// Whoever sees the connection lost may use its memory again: the wire is cut first, and nobody is receiving.
void Client::lose(std::string_view reason) noexcept {
  cut(reason);
  lost_.store(true, std::memory_order_release);
}

void Client::give_up(std::string_view reason) noexcept {
  cut(reason);  // whoever receives comes to its end
  const std::scoped_lock lock(receive_mutex_);
  lost_.store(true, std::memory_order_release);
}

// What came before counts: replies, and the peer's reason.
void Client::give_up_sending() noexcept {
  const std::scoped_lock lock(receive_mutex_);
  if (receive_now(true)) lose("the connection was reset while sending");
}

void Client::cut(std::string_view reason) noexcept {
  const std::scoped_lock lock(state_mutex_);
  if (std::exchange(cut_, true)) return;
  reason_ = Clause(reason);
  channel_->shut_down();
}

Status Client::lost_status() const noexcept { return gate_.closed() ? OFL_CLOSED : OFL_LOST; }

std::string Client::reason() {
  const std::scoped_lock lock(state_mutex_);
  return std::string(reason_.text());
}

}  // namespace ofl
