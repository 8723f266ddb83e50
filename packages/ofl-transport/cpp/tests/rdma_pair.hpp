// Two connected RDMA channels in one process, and what their tests count on.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend.hpp"
#include "gid_choice.hpp"
#include "link.hpp"
#include "socket.hpp"

namespace rdma_pair {

using ofl::Channel;
using ofl::Nanoseconds;
using ofl::Progress;

inline constexpr Nanoseconds kPatience = 60 * ofl::kSecond;  // emulated machines are slow; nothing waits this long

// The address to test on: OFL_TEST_RDMA_ADDRESS, or the first IPv4 address that a device here carries.  Empty: none.
inline std::string test_address() {
  if (const char* given = std::getenv("OFL_TEST_RDMA_ADDRESS")) return given;
  for (const ofl::GidEntry& entry : ofl::read_gids())
    if (entry.state == "ACTIVE" && entry.link_layer == "Ethernet" && entry.gid[10] == 0xFF && entry.gid[0] == 0)
      return ofl::gid_text(entry.gid);
  return {};
}

// A TCP connection of this host with itself, over the address.
inline ofl::Outcome connect_control(const std::string& host, ofl::UniqueFd& client, ofl::UniqueFd& server) {
  std::vector<ofl::Address> addresses;
  const Nanoseconds deadline = ofl::now_ns() + kPatience;
  ofl::Outcome outcome = ofl::resolve(host, 0, deadline, addresses);
  if (!outcome) return outcome;
  ofl::UniqueFd listener;
  ofl::Address bound;
  outcome = ofl::listen_socket(addresses[0], false, listener, bound);
  ofl::Attempt attempt;
  if (outcome) outcome = ofl::connect_socket({bound}, &addresses[0], deadline, client, attempt);
  if (!outcome) return outcome;
  pollfd entry{listener.get(), POLLIN, 0};
  const timespec left = ofl::remaining(deadline);
  static_cast<void>(::ppoll(&entry, 1, &left, nullptr));
  server.reset(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  return server.valid() ? outcome : ofl::failure(OFL_SYSTEM, "accept: " + ofl::errno_text(errno));
}

struct Pair {
  std::unique_ptr<Channel> client;
  std::unique_ptr<Channel> server;
};

inline ofl::Outcome connect_pair(const std::string& host, Pair& pair) {
  ofl::UniqueFd ends[2];
  ofl::Outcome outcome = connect_control(host, ends[0], ends[1]);
  const std::unique_ptr<ofl::Link> client = ofl::make_rdma_link();
  const std::unique_ptr<ofl::Link> server = ofl::make_rdma_link();
  if (outcome) outcome = client->open(ofl::Role::client, ends[0].get(), 1U << 24);
  if (outcome) outcome = server->open(ofl::Role::server, ends[1].get(), 1U << 24);
  if (outcome) outcome = server->join(client->ours(), {});
  if (outcome) outcome = client->join(server->ours(), {});
  if (outcome) outcome = server->finish(std::move(ends[1]), pair.server);
  if (outcome) outcome = client->finish(std::move(ends[0]), pair.client);
  return outcome;
}

// An inbox that keeps every frame, and of heartbeats their number.
class Recorder : public ofl::Inbox {
 public:
  struct Frame {
    ofl::wire::FrameHeader header;
    std::vector<std::byte> body;
  };
  struct Placement {
    std::uint32_t slot;
    std::uint64_t bytes;
  };

  std::vector<Frame> frames;
  std::vector<Placement> placements;

  ofl::Landing landing(const ofl::wire::FrameHeader& header) noexcept override {
    if (static_cast<ofl::wire::FrameType>(header.type) == ofl::wire::FrameType::heartbeat) return {};
    frames.push_back({header, std::vector<std::byte>(header.body_bytes)});
    return {frames.back().body.data(), nullptr};
  }
  void completed(const ofl::wire::FrameHeader& header) noexcept override {
    const bool heartbeat = static_cast<ofl::wire::FrameType>(header.type) == ofl::wire::FrameType::heartbeat;
    ++(heartbeat ? heartbeats : complete);
  }
  const char* placed(std::uint32_t slot, std::uint64_t bytes) noexcept override {
    placements.push_back({slot, bytes});
    return nullptr;
  }

  std::size_t complete = 0;    // without heartbeats
  std::size_t heartbeats = 0;
};

// Sleeps on the channel's descriptor until it is ready, unless there is something already.
inline bool sleep_on(Channel& channel, Nanoseconds deadline, ofl::Arm what = ofl::Arm::all) {
  if (!channel.arm(what)) return true;
  pollfd entry{channel.descriptor(), POLLIN, 0};
  const timespec left = ofl::remaining(deadline);
  return ::ppoll(&entry, 1, &left, nullptr) > 0;
}

// Receives, sleeping in between, until `enough`, an end of the connection, or the end of patience.
inline Progress receive_until(Channel& channel, ofl::Inbox& inbox, const std::function<bool()>& enough) {
  const Nanoseconds deadline = ofl::now_ns() + kPatience;
  for (;;) {
    const Progress progress = channel.receive(inbox, 1U << 20);
    if (enough() || progress == Progress::closed || progress == Progress::failed) return progress;
    if (progress == Progress::blocked && !sleep_on(channel, deadline)) return Progress::blocked;
  }
}

// Sends the whole frame; takes what comes meanwhile, because that is where credits come from.
inline Progress send_all(Channel& channel, ofl::Outgoing& frame, ofl::Inbox& inbox,
                         const ofl::wire::PlacementRecord* where = nullptr) {
  const Nanoseconds deadline = ofl::now_ns() + kPatience;
  for (;;) {
    const Progress sent = where != nullptr ? channel.place(*where, frame) : channel.send(frame);
    if (sent != Progress::blocked) return sent;
    const Progress progress = channel.receive(inbox, 1U << 20);
    if (progress == Progress::closed || progress == Progress::failed) return progress;
    if (progress == Progress::blocked && !sleep_on(channel, deadline)) return Progress::blocked;
  }
}

// Bytes that tell their place: no two neighbours, and no two seeds, look the same.
inline void fill(std::span<std::byte> memory, std::uint64_t seed) {
  std::uint64_t state = seed * 0x9E3779B97F4A7C15U + 1;
  for (std::byte& byte : memory) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    byte = static_cast<std::byte>(state >> 56);
  }
}

inline std::vector<std::byte> pattern(std::size_t bytes, std::uint64_t seed) {
  std::vector<std::byte> made(bytes);
  fill(made, seed);
  return made;
}

inline bool same(std::span<const std::byte> one, std::span<const std::byte> other) {
  return one.size() == other.size() && (one.empty() || std::memcmp(one.data(), other.data(), one.size()) == 0);
}

}  // namespace rdma_pair
