#include "tcp_channel.hpp"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>

#include <poll.h>
#include <sys/uio.h>

namespace ofl {

namespace {

constexpr std::size_t kPartsMax = 64;  // of one frame; well under the kernel's 1024

// The vector of what is left of a frame.  Returns the number of entries.
std::size_t fill_vector(const Outgoing& frame, std::span<iovec> vector) noexcept {
  std::size_t skip = frame.sent();
  std::size_t count = 0;
  const auto add = [&](const void* base, std::size_t bytes) noexcept {
    if (skip >= bytes) {
      skip -= bytes;
      return;
    }
    // iovec is for both directions and so not const; sendmsg does not write through it.
    auto* start = const_cast<char*>(static_cast<const char*>(base)) + skip;
    vector[count++] = {start, bytes - skip};
    skip = 0;
  };
  add(&frame.header(), sizeof frame.header());
  for (const Part& part : frame.parts()) add(part.base, part.bytes);
  return count;
}

}  // namespace

Capabilities TcpChannel::tcp_capabilities() noexcept {
  return {.parts_max = kPartsMax, .registered_memory = false, .direct_placement = true, .one_sided = false};
}

Region TcpChannel::register_memory(std::span<std::byte> memory) noexcept {
  return {memory.data(), memory.size(), 0};  // nothing to pin, and no key that a peer could use
}

void TcpChannel::retract(const std::byte* memory) noexcept {
  if (in_body_ && landing_ == memory) landing_ = nullptr;
}

Progress TcpChannel::send(Outgoing& frame) noexcept {
  assert(frame.parts().size() <= kPartsMax);
  while (frame.sent() < frame.size()) {
    std::array<iovec, kPartsMax + 1> vector;
    msghdr message{};
    message.msg_iov = vector.data();
    message.msg_iovlen = fill_vector(frame, vector);
    const ssize_t sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      frame.advance(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return Progress::blocked;
    } else if (errno != EINTR) {
      return Progress::failed;
    }
  }
  return Progress::done;
}

Progress TcpChannel::place(wire::Slot remote, Outgoing& frame) noexcept {
  // On a byte stream the frame itself names the slot, and the peer's channel reads the body into it.
  assert(frame.header().sequence == wire::sequence_of(remote));
  static_cast<void>(remote);
  return send(frame);
}

Progress TcpChannel::fail(const char* clause) noexcept {
  fault_ = clause;
  return Progress::failed;
}

ssize_t TcpChannel::read_some(std::byte* to, std::size_t bytes, Progress& stopped) noexcept {
  for (;;) {
    const ssize_t got = ::recv(socket_.get(), to, bytes, MSG_DONTWAIT);
    if (got > 0) {
      received_ += static_cast<std::uint64_t>(got);
      return got;
    }
    if (got == 0) {
      stopped = Progress::closed;
      return 0;
    }
    if (errno == EINTR) continue;
    stopped = errno == EAGAIN || errno == EWOULDBLOCK ? Progress::blocked : fail(kResetFault);
    return 0;
  }
}

Progress TcpChannel::receive(Inbox& inbox, std::size_t budget) noexcept {
  if (fault_ != nullptr) return Progress::failed;
  bool drained = false;
  while (budget > 0 && !drained) {
    // Only whole headers are staged between reads, so a body in progress has nothing left in the stage.
    const Progress progress = in_body_ ? read_body(inbox, budget, drained) : read_stage(inbox, budget, drained);
    if (progress != Progress::done) return progress;
  }
  return drained ? Progress::blocked : Progress::done;
}

// The rest of a large body goes straight to where it belongs.
Progress TcpChannel::read_body(Inbox& inbox, std::size_t& budget, bool& drained) noexcept {
  const std::size_t left = header_.body_bytes - landed_;
  const std::size_t room = landing_ != nullptr ? left : std::min(left, stage_.size());
  const std::size_t ask = std::min(room, std::max(budget, kStageBytes));
  Progress stopped = Progress::done;
  const ssize_t got = read_some(landing_ != nullptr ? landing_ + landed_ : stage_.data(), ask, stopped);
  if (stopped != Progress::done) return stopped;
  const auto bytes = static_cast<std::size_t>(got);
  drained = bytes < ask;
  budget -= std::min(budget, bytes);
  landed_ += bytes;
  if (landed_ == header_.body_bytes) {
    in_body_ = false;
    inbox.completed(header_);
  }
  return Progress::done;
}

Progress TcpChannel::read_stage(Inbox& inbox, std::size_t& budget, bool& drained) noexcept {
  const std::size_t ask = stage_.size() - staged_;
  Progress stopped = Progress::done;
  const ssize_t got = read_some(stage_.data() + staged_, ask, stopped);
  if (stopped != Progress::done) return stopped;
  const auto bytes = static_cast<std::size_t>(got);
  drained = bytes < ask;
  budget -= std::min(budget, bytes);
  staged_ += bytes;
  return parse_stage(inbox) ? Progress::done : Progress::failed;
}

// Takes frames off the front of the stage; what is left is less than a header, or nothing in the middle of a body.
bool TcpChannel::parse_stage(Inbox& inbox) noexcept {
  std::size_t at = 0;
  while (staged_ - at >= sizeof header_) {
    std::memcpy(&header_, stage_.data() + at, sizeof header_);
    at += sizeof header_;
    if (!begin_frame(inbox)) return false;
    const std::size_t here = std::min<std::size_t>(header_.body_bytes, staged_ - at);
    if (landing_ != nullptr && here > 0) std::memcpy(landing_, stage_.data() + at, here);
    at += here;
    landed_ = here;
    if (landed_ < header_.body_bytes) {
      in_body_ = true;
      staged_ = 0;
      return true;
    }
    inbox.completed(header_);
  }
  staged_ -= at;
  if (at > 0 && staged_ > 0) std::memmove(stage_.data(), stage_.data() + at, staged_);
  return true;
}

bool TcpChannel::begin_frame(Inbox& inbox) noexcept {
  const char* clause = wire::header_fault(header_);
  Landing landing;
  if (clause == nullptr) {
    landing = inbox.landing(header_);
    clause = landing.fault;
  }
  landing_ = landing.memory;
  if (clause != nullptr) fail(clause);
  return clause == nullptr;
}

Wait TcpChannel::wait_readable(Nanoseconds deadline) noexcept {
  pollfd entry{socket_.get(), POLLIN, 0};
  const timespec left = remaining(deadline, kSlice);
  const int ready = ::ppoll(&entry, 1, &left, nullptr);
  if (ready > 0) return Wait::ready;
  if (ready < 0) return Wait::interrupted;
  return now_ns() >= deadline ? Wait::deadline : Wait::again;
}

bool TcpChannel::readable_now() noexcept {
  pollfd entry{socket_.get(), POLLIN, 0};
  return ::poll(&entry, 1, 0) > 0;
}

void TcpChannel::shut_down() noexcept { ::shutdown(socket_.get(), SHUT_RDWR); }

void TcpChannel::end_sending() noexcept { ::shutdown(socket_.get(), SHUT_WR); }

}  // namespace ofl
