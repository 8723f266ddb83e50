// Frames over a TCP socket: how much of a large body must be here before the kernel tells of it.

#include "socket_channel.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "check.hpp"

using namespace ofl;

namespace {

constexpr std::size_t kMark = 1U << 20;
constexpr std::size_t kBody = 4 * kMark;

class Landed final : public Inbox {
 public:
  Landing landing(const wire::FrameHeader& header) noexcept override {
    body.resize(header.body_bytes);
    return {body.data(), nullptr};
  }
  void completed(const wire::FrameHeader&) noexcept override { ++frames; }

  std::vector<std::byte> body;
  int frames = 0;
};

// A channel over TCP, what comes in, and the peer's socket.
class Pair {
 public:
  Pair() : channel_(connected(peer_)) {}

  SocketChannel& channel() { return channel_; }
  Landed& inbox() { return inbox_; }

  void sends(const std::string& bytes) {
    CHECK(::send(peer_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()));
  }
  // Reads until so many bytes of the stream have come.
  void reads_up_to(std::uint64_t bytes) {
    const Nanoseconds deadline = now_ns() + 20 * kSecond;
    while (channel_.bytes_received() < bytes && now_ns() < deadline)
      CHECK(channel_.receive(inbox_, 1U << 20) != Progress::failed);
    CHECK(channel_.bytes_received() == bytes);
  }
  bool told() {
    pollfd entry{channel_.descriptor(), POLLIN, 0};
    return ::poll(&entry, 1, 0) > 0;
  }
  int kernel_mark() {
    int bytes = 0;
    socklen_t size = sizeof bytes;
    CHECK(::getsockopt(channel_.descriptor(), SOL_SOCKET, SO_RCVLOWAT, &bytes, &size) == 0);
    return bytes;
  }

 private:
  static UniqueFd connected(UniqueFd& peer) {
    const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* where = reinterpret_cast<sockaddr*>(&address);
    socklen_t size = sizeof address;
    CHECK(::bind(listener.get(), where, size) == 0 && ::listen(listener.get(), 1) == 0);
    CHECK(::getsockname(listener.get(), where, &size) == 0);
    UniqueFd ours(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    CHECK(::connect(ours.get(), where, size) == 0);
    peer.reset(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    return ours;
  }

  UniqueFd peer_;
  Landed inbox_;
  SocketChannel channel_;
};

std::string header_of(std::size_t body_bytes) {
  const wire::FrameHeader header = wire::make_header(wire::FrameType::request, 1, body_bytes);
  return {reinterpret_cast<const char*>(&header), sizeof header};
}

}  // namespace

TEST(a_large_body_is_told_of_a_mark_at_a_time_and_its_end_as_it_comes) {
  Pair pair;
  std::uint64_t sent = sizeof(wire::FrameHeader) + 10;
  pair.sends(header_of(kBody) + std::string(10, 'a'));
  CHECK(pair.channel().low_water() == 1);
  pair.reads_up_to(sent);
  CHECK(pair.channel().low_water() == kMark);
  CHECK(pair.kernel_mark() == static_cast<int>(kMark));
  pair.sends("b");
  CHECK(!pair.told());
  CHECK(pair.channel().readable_now());  // although nobody was told
  pair.reads_up_to(++sent);
  CHECK(!pair.channel().readable_now());
  for (const std::size_t end = sizeof(wire::FrameHeader) + kBody; sent < end;) {
    const std::size_t bytes = std::min<std::size_t>(1U << 15, end - sent);
    pair.sends(std::string(bytes, 'c'));
    sent += bytes;
    pair.reads_up_to(sent);
    CHECK(pair.channel().low_water() == (end - sent >= 2 * kMark ? kMark : 1));
  }
  CHECK(pair.inbox().frames == 1);
  CHECK(pair.kernel_mark() == 1);
}

TEST(a_dropped_body_leaves_no_mark) {
  Pair pair;
  pair.sends(header_of(kBody) + std::string(10, 'a'));
  pair.reads_up_to(sizeof(wire::FrameHeader) + 10);
  pair.channel().retract(pair.inbox().body.data());
  for (std::size_t left = kBody - 10; left > 0;) {
    const std::size_t bytes = std::min<std::size_t>(1U << 15, left);
    pair.sends(std::string(bytes, 'c'));
    left -= bytes;
    pair.reads_up_to(sizeof(wire::FrameHeader) + kBody - left);
  }
  CHECK(pair.inbox().frames == 1);
  CHECK(pair.kernel_mark() == 1);
  pair.sends("x");
  CHECK(pair.told());
}

TEST(a_body_below_two_marks_is_told_of_as_it_comes) {
  Pair pair;
  pair.sends(header_of(2 * kMark) + "a");
  pair.reads_up_to(sizeof(wire::FrameHeader) + 1);
  CHECK(pair.kernel_mark() == 1);
}
