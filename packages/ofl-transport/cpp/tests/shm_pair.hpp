// Two ends of one shared-memory connection for tests, and what arrives at them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <sys/socket.h>

#include "check.hpp"
#include "shm_channel.hpp"

namespace shm_pair {

inline constexpr std::size_t kRing = ofl::kRingBytesMin;
inline constexpr std::size_t kBudget = std::size_t{1} << 20;
inline constexpr ofl::Nanoseconds kPatience = 20 * ofl::kSecond;  // of a test, before it fails

inline std::byte byte_of(std::uint64_t seed, std::size_t at) {
  return static_cast<std::byte>(seed * 131 + at + at / 251);
}

inline std::vector<std::byte> body_of(std::uint64_t seed, std::size_t bytes) {
  std::vector<std::byte> body(bytes);
  for (std::size_t i = 0; i < bytes; ++i) body[i] = byte_of(seed, i);
  return body;
}

// Keeps the last body; counts frames and those whose body is not `body_of` its sequence.
class Kept final : public ofl::Inbox {
 public:
  ofl::Landing landing(const ofl::wire::FrameHeader& header) noexcept override {
    body.assign(header.body_bytes, std::byte{0xEE});
    return {body.data(), nullptr};
  }
  void completed(const ofl::wire::FrameHeader& header) noexcept override {
    ++frames;
    sequence = header.sequence;
    if (body != body_of(header.sequence, header.body_bytes)) ++spoiled;
  }

  std::vector<std::byte> body;
  std::uint64_t sequence = 0;
  std::uint64_t frames = 0;
  std::uint64_t spoiled = 0;
};

// A frame that owns its body, in `count` parts of uneven size.
class Frame {
 public:
  Frame(std::uint64_t sequence, std::size_t bytes, std::size_t count = 1)
      : body_(body_of(sequence, bytes)), parts_(cut(body_, count)),
        out(ofl::wire::make_header(ofl::wire::FrameType::request, sequence, bytes), parts_) {}

 private:
  static std::vector<ofl::Part> cut(const std::vector<std::byte>& body, std::size_t count) {
    std::vector<ofl::Part> parts;
    std::size_t at = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t end = i + 1 == count ? body.size() : body.size() * i / count;  // the first one is empty
      parts.push_back({body.data() + at, end - at});
      at = end;
    }
    return parts;
  }

  std::vector<std::byte> body_;
  std::vector<ofl::Part> parts_;

 public:
  ofl::Outgoing out;
};

// What both ends of a connection are made of, before they are channels.
struct Ends {
  explicit Ends(std::size_t ring_bytes = kRing) {
    int sockets[2];
    CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sockets) == 0);
    server_socket = ofl::UniqueFd(sockets[0]);
    client_socket = ofl::UniqueFd(sockets[1]);
    ofl::Outcome outcome = ofl::ShmRegion::make(ring_bytes, server_region, memory);
    CHECK(outcome.status == OFL_OK);
    told = {ring_bytes, ofl::region_bytes_for(ring_bytes)};
  }
  // `looks` false: the channels sleep where they could look, so that a test sees every sleep.
  std::unique_ptr<ofl::ShmChannel> server(bool looks) {
    return std::make_unique<ofl::ShmChannel>(std::move(server_region), std::move(server_socket), looks);
  }
  std::unique_ptr<ofl::ShmChannel> client(bool looks) {
    ofl::ShmRegion region;
    const ofl::Outcome outcome = ofl::ShmRegion::attach(told, memory, region);
    CHECK(outcome.status == OFL_OK);
    return std::make_unique<ofl::ShmChannel>(std::move(region), std::move(client_socket), looks);
  }

  ofl::UniqueFd server_socket;
  ofl::UniqueFd client_socket;
  ofl::ShmRegion server_region;
  ofl::UniqueFd memory;
  ofl::wire::ShmLinkBody told{};
};

// Both ends in this process.
struct Pair {
  explicit Pair(bool looks = false, std::size_t ring_bytes = kRing)
      : ends(ring_bytes), client(ends.client(looks)), server(ends.server(looks)) {}

  Ends ends;
  std::unique_ptr<ofl::ShmChannel> client;
  std::unique_ptr<ofl::ShmChannel> server;
};

inline bool send_now(ofl::ShmChannel& channel, std::uint64_t sequence, std::size_t bytes) {
  Frame frame(sequence, bytes);
  return channel.send(frame.out) == ofl::Progress::done;
}

// Whether the armed channel is woken, however many slices of time that takes.
inline bool is_woken(ofl::Channel& channel, short events) {
  const ofl::Nanoseconds deadline = ofl::now_ns() + kPatience;
  ofl::Wait wait = ofl::Wait::again;
  while (wait == ofl::Wait::again || wait == ofl::Wait::interrupted) wait = ofl::wait_for(channel, events, deadline);
  return wait == ofl::Wait::ready;
}

// Sends all of a frame, sleeping where there is no room.  False: the channel ended, or a wake-up did not come.
inline bool send_all(ofl::ShmChannel& channel, ofl::Outgoing& frame) {
  const ofl::Nanoseconds deadline = ofl::now_ns() + kPatience;
  for (;;) {
    const ofl::Progress progress = channel.send(frame);
    if (progress == ofl::Progress::done) return true;
    if (progress != ofl::Progress::blocked || ofl::now_ns() > deadline) return false;
    if (!channel.arm()) continue;
    pollfd entry{channel.descriptor(), channel.room_events(), 0};
    if (::poll(&entry, 1, static_cast<int>(kPatience / ofl::kMillisecond)) == 0) return false;  // a lost wake-up
  }
}

// Receives until `frames` frames have come, sleeping where there is nothing.
inline bool receive_until(ofl::ShmChannel& channel, Kept& kept, std::uint64_t frames) {
  const ofl::Nanoseconds deadline = ofl::now_ns() + kPatience;
  while (kept.frames < frames) {
    const ofl::Progress progress = channel.receive(kept, kBudget);
    if (progress == ofl::Progress::done) continue;
    if (progress != ofl::Progress::blocked || ofl::now_ns() > deadline) return kept.frames >= frames;
    if (kept.frames >= frames || !channel.arm()) continue;
    pollfd entry{channel.descriptor(), POLLIN, 0};
    if (::poll(&entry, 1, static_cast<int>(kPatience / ofl::kMillisecond)) == 0) return false;  // a lost wake-up
  }
  return true;
}

inline bool readable(int descriptor) {
  pollfd entry{descriptor, POLLIN, 0};
  return ::poll(&entry, 1, 0) == 1;
}

// Bells that wait in the socket; takes them.
inline std::size_t bells(const ofl::ShmChannel& channel) {
  char waiting[256];
  const ssize_t got = ::recv(channel.descriptor(), waiting, sizeof waiting, MSG_DONTWAIT);
  return got > 0 ? static_cast<std::size_t>(got) : 0;
}

}  // namespace shm_pair
