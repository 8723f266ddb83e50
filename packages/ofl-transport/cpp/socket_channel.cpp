#include "socket_channel.hpp"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/uio.h>

#include "copy.hpp"

namespace ofl {

namespace {

constexpr std::size_t kVectorMax = kPartsMax + 2;  // a header, a placement, the parts; well under the kernel's 1024

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

Capabilities SocketChannel::socket_capabilities() noexcept {
  return {.parts_max = kPartsMax, .registered_memory = false, .direct_placement = true, .one_sided = false};
}

SocketChannel::SocketChannel(UniqueFd socket) noexcept
    : socket_(std::move(socket)), unix_(local_address(socket_.get()).family() == AF_UNIX) {}

namespace {

constexpr std::size_t kLowWaterBytes = 1U << 20;
// Below it a copy costs less than the kernel's reading of a vector.
constexpr std::size_t kGatherBytes = 512;

// The bytes of a small frame, one after another.
std::size_t gather(const Outgoing& frame, std::byte* to) noexcept {
  std::memcpy(to, &frame.header(), sizeof frame.header());
  std::size_t at = sizeof frame.header();
  for (const Part& part : frame.parts()) {
    copy_bytes(to + at, static_cast<const std::byte*>(part.base), part.bytes);
    at += part.bytes;
  }
  assert(at == frame.size());
  return at;
}

// Room for the descriptors of one frame, aligned as the kernel wants it.
union ControlRoom {
  cmsghdr header;
  char bytes[CMSG_SPACE(sizeof(int) * 4)];
};

void attach(msghdr& message, ControlRoom& room, std::span<const int> descriptors) noexcept {
  const std::size_t bytes = descriptors.size_bytes();
  message.msg_control = room.bytes;
  message.msg_controllen = CMSG_SPACE(bytes);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(bytes);
  std::memcpy(CMSG_DATA(header), descriptors.data(), bytes);
}

}  // namespace

// One attempt; what sendmsg(2) returns.
ssize_t SocketChannel::send_some(const Outgoing& frame) noexcept {
  constexpr int kFlags = MSG_NOSIGNAL | MSG_DONTWAIT;
  if (frame.sent() == 0 && frame.size() <= kGatherBytes && passing_.empty()) {
    std::array<std::byte, kGatherBytes> whole;
    return ::send(socket_.get(), whole.data(), gather(frame, whole.data()), kFlags);
  }
  std::array<iovec, kVectorMax> vector;
  ControlRoom room{};
  msghdr message{};
  message.msg_iov = vector.data();
  message.msg_iovlen = fill_vector(frame, vector);
  if (!passing_.empty()) attach(message, room, passing_);
  return ::sendmsg(socket_.get(), &message, kFlags);
}

Progress SocketChannel::send(Outgoing& frame) noexcept {
  assert(frame.parts().size() <= kPartsMax + 1 && passing_.size() <= kPassedMax);
  while (frame.sent() < frame.size()) {
    const ssize_t sent = send_some(frame);
    if (sent >= 0) {
      passing_ = {};
      frame.advance(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return Progress::blocked;
    } else if (errno != EINTR) {
      return Progress::failed;
    }
  }
  return Progress::done;
}

// What a peer passes is taken whether or not it was asked for; more than fits is closed by the kernel.
void SocketChannel::take_passed(msghdr& message) noexcept {
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(header) + i * sizeof(int), sizeof descriptor);
      UniqueFd owned(descriptor);
      if (passed_count_ < kPassedMax) passed_[passed_count_++] = std::move(owned);
    }
  }
}

ssize_t SocketChannel::receive_bytes(std::byte* to, std::size_t bytes) noexcept {
  if (!unix_) return ::recv(socket_.get(), to, bytes, MSG_DONTWAIT);
  iovec vector{to, bytes};
  ControlRoom room{};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = room.bytes;
  message.msg_controllen = sizeof room.bytes;
  const ssize_t got = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got >= 0) take_passed(message);
  return got;
}

ssize_t SocketChannel::read_some(std::byte* to, std::size_t bytes, Progress& stopped) noexcept {
  for (;;) {
    const ssize_t got = receive_bytes(to, bytes);
    if (got > 0) return got;
    if (got == 0) {
      stopped = Progress::closed;
      return 0;
    }
    if (errno == EINTR) continue;
    stopped = errno == EAGAIN || errno == EWOULDBLOCK ? Progress::blocked : Progress::failed;
    if (stopped == Progress::failed) reset_ = true;
    return 0;
  }
}

Progress SocketChannel::receive(Inbox& inbox, std::size_t budget) noexcept {
  if (fault() != nullptr) return Progress::failed;
  const Progress progress = receive_some(inbox, budget);
  if (progress == Progress::done || progress == Progress::blocked) set_low_water();
  return progress;
}

// The kernel would wake us for every few segments of a body, and the sender's CPU pays for that.  The rest of it comes in
// small pieces again, so that little is left to copy once the last byte is here.
void SocketChannel::set_low_water() noexcept {
  const std::size_t wanted = !unix_ && reader_.body_left() >= 2 * kLowWaterBytes ? kLowWaterBytes : 1;
  if (wanted == low_water_) return;
  const int bytes = static_cast<int>(wanted);
  if (::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes) == 0) low_water_ = wanted;
}

Progress SocketChannel::receive_some(Inbox& inbox, std::size_t budget) noexcept {
  bool drained = false;
  while (budget > 0 && !drained) {
    // The rest of a large body goes straight to where it belongs.
    const std::span<std::byte> room = reader_.body_room();
    const std::span<std::byte> target = room.empty() ? std::span<std::byte>(stage_) : room;
    const std::size_t ask = std::min(target.size(), std::max(budget, kStageBytes));
    Progress stopped = Progress::done;
    const ssize_t got = read_some(target.data(), ask, stopped);
    if (stopped != Progress::done) return stopped;
    const auto bytes = static_cast<std::size_t>(got);
    drained = bytes < ask;
    budget -= std::min(budget, bytes);
    if (!room.empty()) {
      reader_.landed(inbox, bytes);
    } else if (!reader_.take(inbox, {stage_.data(), bytes})) {
      return Progress::failed;
    }
  }
  return drained ? Progress::blocked : Progress::done;
}

bool SocketChannel::readable_now() noexcept {
  pollfd entry{socket_.get(), POLLIN, 0};
  if (::poll(&entry, 1, 0) > 0) return true;
  int bytes = 0;  // below the low-water mark
  return low_water_ > 1 && ::ioctl(socket_.get(), FIONREAD, &bytes) == 0 && bytes > 0;
}

void SocketChannel::shut_down() noexcept { ::shutdown(socket_.get(), SHUT_RDWR); }

void SocketChannel::end_sending() noexcept { ::shutdown(socket_.get(), SHUT_WR); }

}  // namespace ofl
