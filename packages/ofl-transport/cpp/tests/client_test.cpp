// A client whose wire the test plays: from when on the memory of a call is the caller's again, whatever the peer does.

#include "client.hpp"

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sys/socket.h>

#include "check.hpp"
#include "frame_reader.hpp"

using ofl::Client;
using ofl::Memory;
using ofl::Progress;
using ofl::wire::FrameType;

namespace {

constexpr std::size_t kRoom = 4096;

struct Known final : ofl::Registration {
  std::uint32_t local_key() const noexcept override { return 1; }
  std::uint32_t remote_key() const noexcept override { return 2; }
};

std::string frame(FrameType type, std::uint64_t sequence, const std::string& body = "") {
  const auto header = ofl::wire::make_header(type, sequence, body.size());
  return std::string(reinterpret_cast<const char*>(&header), sizeof header) + body;
}

// The client's end of a one-sided wire: what the peer says comes as bytes, what it wrote as completions.
class Wire final : public ofl::Channel, public ofl::Registrar {
 public:
  Wire() {
    int ends[2] = {-1, -1};
    CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    socket_.reset(ends[0]);
    peer_.reset(ends[1]);
  }

  // The peer's side.
  void say(const std::string& bytes) { coming_ += bytes; }
  void complete(std::uint64_t sequence, std::uint64_t bytes) {
    placements_.emplace_back(ofl::wire::slot_of(sequence).index, bytes);
  }
  void reset() { reset_ = true; }
  void tell_late() { low_water_ = 1U << 20; }
  // Once, in the middle of a receive, where a body might be landing.
  void while_receiving(std::function<void()> happens) { happens_ = std::move(happens); }
  bool down() const { return down_.load(); }

  ofl::Capabilities capabilities() const noexcept override {
    return {.parts_max = 64, .registered_memory = true, .direct_placement = true, .one_sided = true};
  }
  std::string describe() const override { return "test"; }
  int descriptor() const noexcept override { return socket_.get(); }
  ofl::Registrar* registrar() noexcept override { return this; }
  ofl::Outcome add(std::span<std::byte>, std::unique_ptr<ofl::Registration>& registration) override {
    registration = std::make_unique<Known>();
    return {};
  }
  void retract(const std::byte* memory) noexcept override { frames_.retract(memory); }
  Progress send(ofl::Outgoing& outgoing) noexcept override {
    if (reset_ || down_.load()) return Progress::failed;
    outgoing.advance(outgoing.size() - outgoing.sent());
    return Progress::done;
  }
  // As a socket, whose bytes can be read although it was shut down.
  Progress receive(ofl::Inbox& inbox, std::size_t) noexcept override {
    if (const auto happens = std::exchange(happens_, nullptr)) happens();
    const std::string bytes = std::exchange(coming_, {});
    CHECK(frames_.take(inbox, {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}));
    for (const auto& [slot, size] : std::exchange(placements_, {})) CHECK(inbox.placed(slot, size) == nullptr);
    return down_.load() ? Progress::closed : Progress::blocked;
  }
  bool readable_now() noexcept override { return !coming_.empty() || !placements_.empty(); }
  std::size_t low_water() const noexcept override { return low_water_; }
  bool mid_frame() const noexcept override { return frames_.mid_frame(); }
  std::uint64_t bytes_received() const noexcept override { return frames_.bytes_received(); }
  void shut_down() noexcept override {
    down_.store(true);
    ::shutdown(socket_.get(), SHUT_RDWR);
  }
  void end_sending() noexcept override {}
  const char* fault() const noexcept override { return frames_.fault(); }

 private:
  ofl::UniqueFd socket_;
  ofl::UniqueFd peer_;
  ofl::FrameReader frames_;
  std::string coming_;
  std::vector<std::pair<std::uint32_t, std::uint64_t>> placements_;
  std::function<void()> happens_;
  std::size_t low_water_ = 1;
  bool reset_ = false;
  std::atomic<bool> down_{false};
};

// A client with one stretch of memory for replies, and its peer.
class Rig {
 public:
  explicit Rig(ofl::Nanoseconds heartbeat = 60 * ofl::kSecond) {  // by default the keeper sleeps
    auto wire = std::make_unique<Wire>();
    peer_ = wire.get();
    ofl::ClientOptions options;
    options.heartbeat = heartbeat;
    options.loss = 120 * ofl::kSecond;
    ofl::Agreement agreement;
    agreement.frame_bytes_max = 1U << 16;
    agreement.calls_max = 8;
    client_ = std::make_unique<Client>(std::move(wire), options, agreement);
    CHECK(Memory::create(bytes_, kRoom, false, memory_));
    CHECK(client_->register_memory(*memory_));
  }

  Client& client() { return *client_; }
  Wire& peer() { return *peer_; }

  int submit(std::uint64_t& sequence, bool into = true) {
    ofl::CallMemory memory;
    if (into) memory.into = memory_;
    if (into) memory.bytes = kRoom;
    const ofl::Part part{"request", 7};
    return client_->submit({&part, 1}, memory, 0, sequence);
  }
  std::uint64_t submitted(bool into = true) {
    std::uint64_t sequence = 0;
    CHECK(submit(sequence, into) == OFL_OK);
    return sequence;
  }
  int wait(std::uint64_t sequence, std::string& reply, ofl::Nanoseconds deadline = 0) {
    std::span<const std::byte> body;
    const int status = client_->wait(sequence, deadline, body);
    reply.assign(reinterpret_cast<const char*>(body.data()), body.size());
    return status;
  }

  // The caller writes to its own memory, and finds it again as it left it.
  void take_back() { std::memset(bytes_, 'm', kRoom); }
  bool untouched() const { return text() == std::string(kRoom, 'm'); }
  std::string text() const { return {reinterpret_cast<const char*>(bytes_), kRoom}; }

 private:
  std::byte bytes_[kRoom] = {};
  std::shared_ptr<Memory> memory_;
  std::unique_ptr<Client> client_;
  Wire* peer_ = nullptr;  // the client's
};

}  // namespace

TEST(nothing_lands_after_a_reply_was_waited_for_although_the_peer_had_begun_another_way) {
  Rig rig;
  std::string reply;
  const std::uint64_t first = rig.submitted();
  const std::string plain = frame(FrameType::reply, first, std::string(1000, 'p'));
  rig.peer().say(plain.substr(0, 500));
  rig.peer().complete(first, 10);
  CHECK(rig.wait(first, reply) == OFL_OK && reply.size() == 10);
  rig.take_back();
  rig.peer().say(plain.substr(500));
  const std::uint64_t second = rig.submitted(false);
  rig.peer().say(frame(FrameType::reply, second, "second"));
  CHECK(rig.wait(second, reply) == OFL_OK && reply == "second");
  CHECK(rig.untouched());
}

TEST(nothing_lands_after_a_call_was_cancelled_and_its_placement_is_done) {
  Rig rig;
  std::string reply;
  const std::uint64_t first = rig.submitted();
  const std::string plain = frame(FrameType::reply, first, std::string(1000, 'p'));
  rig.peer().say(plain.substr(0, 500));
  CHECK(rig.wait(first, reply) == OFL_DEADLINE);
  CHECK(rig.client().cancel(first) == OFL_QUARANTINED);
  rig.peer().complete(first, 10);
  CHECK(rig.client().settled(first, 0) == OFL_OK);
  rig.take_back();
  rig.peer().say(plain.substr(500));
  const std::uint64_t second = rig.submitted(false);
  rig.peer().say(frame(FrameType::reply, second, "second"));
  CHECK(rig.wait(second, reply) == OFL_OK && reply == "second");
  CHECK(rig.untouched());
}

TEST(nothing_lands_after_an_answered_call_was_cancelled) {
  Rig rig;
  std::string reply;
  const std::uint64_t first = rig.submitted();
  const std::uint64_t other = rig.submitted(false);
  const std::string plain = frame(FrameType::reply, first, std::string(1000, 'p'));
  rig.peer().say(plain.substr(0, 500));
  rig.peer().complete(first, 10);
  CHECK(rig.wait(other, reply) == OFL_DEADLINE);
  CHECK(rig.client().cancel(first) == OFL_OK);
  rig.take_back();
  rig.peer().say(plain.substr(500) + frame(FrameType::reply, other, "other"));
  CHECK(rig.wait(other, reply) == OFL_OK && reply == "other");
  CHECK(rig.untouched());
}

TEST(nothing_lands_that_comes_with_the_peers_goodbye) {
  Rig rig;
  std::string reply;
  const std::uint64_t call = rig.submitted();
  rig.take_back();
  rig.peer().say(frame(FrameType::close, 0, "enough") + frame(FrameType::reply, call, std::string(1000, 'p')));
  CHECK(rig.wait(call, reply) == OFL_LOST);
  CHECK(rig.client().reason() == "the peer closed the connection: enough");
  CHECK(rig.untouched());
}

TEST(nothing_lands_once_the_connection_is_lost_although_the_wire_still_has_bytes) {
  Rig rig;
  std::string reply;
  const std::uint64_t call = rig.submitted();
  rig.peer().say(frame(FrameType::close, 0, "enough"));
  CHECK(rig.wait(call, reply) == OFL_LOST);
  CHECK(!rig.client().alive());
  rig.take_back();
  rig.peer().say(frame(FrameType::reply, call, std::string(1000, 'p')));
  CHECK(rig.wait(call, reply) == OFL_LOST);
  CHECK(rig.client().cancel(call) == OFL_OK);
  CHECK(rig.untouched());
}

// Whoever asks `alive`, on another thread, may take the answer for the end of all landing.
TEST(a_connection_lives_as_long_as_something_can_land) {
  Rig rig;
  std::string reply;
  const std::uint64_t call = rig.submitted();
  std::thread closer;
  bool lived = false;
  rig.peer().while_receiving([&] {
    closer = std::thread([&] { rig.client().close(); });
    for (const auto deadline = ofl::now_ns() + 20 * ofl::kSecond; !rig.peer().down() && ofl::now_ns() < deadline;)
      std::this_thread::yield();
    CHECK(rig.peer().down());
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    lived = rig.client().alive();
  });
  CHECK(rig.wait(call, reply) == OFL_CLOSED);
  closer.join();
  CHECK(lived);
  CHECK(!rig.client().alive());
  CHECK(rig.client().reason() == "closed by this side");
}

TEST(a_reply_that_came_before_a_reset_counts) {
  Rig rig;
  std::string reply;
  const std::uint64_t first = rig.submitted();
  rig.peer().say(frame(FrameType::reply, first, "first"));
  rig.peer().reset();
  std::uint64_t second = 0;
  CHECK(rig.submit(second, false) == OFL_LOST);
  CHECK(rig.client().reason() == "the connection was reset while sending");
  CHECK(rig.wait(first, reply) == OFL_OK && reply == "first");
  CHECK(rig.text().substr(0, 5) == "first");
}

TEST(a_waiter_reads_by_itself_where_nobody_tells_it_of_a_little) {
  Rig rig(20 * ofl::kMillisecond);
  std::string reply;
  const std::uint64_t sequence = rig.submitted();
  CHECK(rig.wait(sequence, reply, ofl::now_ns() + 150 * ofl::kMillisecond) == OFL_DEADLINE);
  rig.peer().tell_late();
  CHECK(rig.wait(sequence, reply, ofl::now_ns() + 150 * ofl::kMillisecond) == OFL_INTERRUPTED);
}
