// One connection of a server, without the server's loop: what it counts when it ends.

#include "connection.hpp"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <sys/socket.h>

#include "check.hpp"
#include "server_shared.hpp"
#include "socket_channel.hpp"
#include "wire.hpp"

namespace {

std::atomic<bool> no_arrays{false};  // there is no memory for another one

}  // namespace

// The whole program's, so that a test can run out of memory where it wants to.
void* operator new[](std::size_t bytes) {
  void* const memory = no_arrays ? nullptr : std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

using ofl::Counter;
using ofl::wire::ConnectBody;
using ofl::wire::FrameHeader;
using ofl::wire::FrameType;

namespace {

// A connection of a server for the service "echo", and the client's end of its socket.
class Served {
 public:
  explicit Served(ofl::Nanoseconds frame = 60 * ofl::kSecond) {
    shared_.options.service = "echo";
    shared_.options.version_min = shared_.options.version_max = 1;
    shared_.options.frame_bytes_max = 1U << 16;
    shared_.options.connections_max = 4;
    shared_.options.calls_max = 8;
    shared_.options.handshake = 60 * ofl::kSecond;
    shared_.options.frame = frame;
    int ends[2] = {-1, -1};
    CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    client_.reset(ends[1]);
    connection_ = std::make_shared<ofl::Connection>(shared_, 1, std::make_unique<ofl::SocketChannel>(ofl::UniqueFd(ends[0])),
                                                    ofl::wire::Transport::tcp, ofl::Address{}, "test", ofl::now_ns());
  }

  // False: the connection has ended.
  bool hears(const FrameHeader& header, const std::string& body = "") {
    std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
    bytes += body;
    CHECK(::send(client_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()));
    return connection_->on_readable();
  }

  bool offers(const std::string& service) {
    ConnectBody offer{};
    offer.transport = static_cast<std::uint8_t>(ofl::wire::Transport::tcp);
    offer.version_min = offer.version_max = 1;
    offer.frame_bytes_max = 1U << 16;
    offer.heartbeat_ms = 100;
    offer.loss_ms = 1000;
    std::memcpy(offer.service, service.data(), service.size());
    CHECK(ofl::wire::connect_fault(offer) == nullptr);
    const std::string body(reinterpret_cast<const char*>(&offer), sizeof offer);
    return hears(ofl::wire::make_header(FrameType::connect, 0, body.size()), body);
  }

  std::uint64_t count(Counter counter) const { return shared_.counters.at(static_cast<std::size_t>(counter)); }
  // What the client's end shows: nothing yet, or the end of the stream.
  bool cut() const {
    char byte = 0;
    ssize_t got = 0;
    do got = ::recv(client_.get(), &byte, 1, MSG_DONTWAIT);
    while (got > 0);
    return got == 0;
  }
  const std::string& end_reason() const { return connection_->end_reason(); }
  ofl::Connection& connection() { return *connection_; }

 private:
  ofl::ServerShared shared_;
  ofl::UniqueFd client_;
  std::shared_ptr<ofl::Connection> connection_;
};

FrameHeader of_another_version() {
  FrameHeader header = ofl::wire::make_header(FrameType::heartbeat, 0, 0);
  header.header_version = 1;
  return header;
}

FrameHeader garbled() {
  FrameHeader header = ofl::wire::make_header(FrameType::heartbeat, 0, 0);
  header.magic ^= 1;
  return header;
}

}  // namespace

TEST(a_refused_client_that_then_speaks_another_version_is_refused_once) {
  Served served;
  CHECK(served.offers("another"));
  CHECK(served.count(Counter::refused) == 1);
  CHECK(!served.hears(of_another_version()));
  CHECK(served.end_reason() == ofl::wire::kHeaderVersionFault);
  CHECK(served.count(Counter::refused) == 1);
  CHECK(served.count(Counter::garbage) == 0);
}

TEST(a_refused_client_that_then_speaks_garbage_is_refused_and_no_more) {
  Served served;
  CHECK(served.offers("another"));
  CHECK(!served.hears(garbled()));
  CHECK(served.count(Counter::refused) == 1);
  CHECK(served.count(Counter::garbage) == 0);
}

TEST(a_client_that_was_told_goodbye_and_speaks_garbage_is_no_garbage) {
  Served served;
  CHECK(served.offers("echo"));
  CHECK(served.count(Counter::accepted) == 1);
  CHECK(served.connection().disconnect("enough"));
  CHECK(!served.hears(garbled()));
  CHECK(served.count(Counter::garbage) == 0);
  CHECK(served.count(Counter::disconnects) == 1);
}

TEST(a_client_that_speaks_garbage_before_it_was_judged_is_garbage) {
  Served fresh;
  CHECK(!fresh.hears(garbled()));
  CHECK(fresh.count(Counter::garbage) == 1);
  Served open;
  CHECK(open.offers("echo"));
  CHECK(!open.hears(garbled()));
  CHECK(open.count(Counter::garbage) == 1);
  CHECK(open.count(Counter::refused) == 0);
}

TEST(a_first_frame_of_another_version_is_refused) {
  Served served;
  CHECK(!served.hears(of_another_version()));
  CHECK(served.count(Counter::refused) == 1);
  CHECK(served.count(Counter::garbage) == 0);
}

// Over RDMA a channel that ends waits for the peer's acknowledgement, in the thread that serves everybody; a lost peer sends
// none.  What is cut waits for nobody.
TEST(the_wire_of_a_client_that_was_lost_is_cut_before_its_channel_ends) {
  Served served;
  CHECK(served.offers("echo"));
  const ofl::Nanoseconds late = ofl::now_ns() + 2 * ofl::kSecond;  // it offered to be lost after one
  CHECK(!served.connection().check_time(late, false));
  CHECK(served.count(Counter::lost) == 1);
  CHECK(!served.cut());
  served.connection().finish();
  CHECK(served.cut());
}

TEST(the_wire_of_a_client_that_began_a_frame_and_stopped_is_cut_before_its_channel_ends) {
  Served served(ofl::kSecond / 10);
  CHECK(served.offers("echo"));
  CHECK(served.hears(ofl::wire::make_header(FrameType::request, 1, 10), "half"));
  CHECK(!served.connection().check_time(ofl::now_ns() + ofl::kSecond / 2, false));  // not silent for long enough
  CHECK(served.end_reason() == "a frame was begun and not finished in time");
  CHECK(served.count(Counter::lost) == 1);
  served.connection().finish();
  CHECK(served.cut());
}

TEST(the_wire_of_a_client_that_says_goodbye_is_left_to_its_channel) {
  Served served;
  CHECK(served.offers("echo"));
  CHECK(!served.hears(ofl::wire::make_header(FrameType::close, 0, 0)));
  served.connection().finish();
  CHECK(served.count(Counter::lost) == 0);
  CHECK(!served.cut());
}

// Queued requests keep a connection that has ended until the consumer takes them, who may wait for lent memory before that.
TEST(a_connection_that_has_ended_lends_no_memory_and_is_cut_however_long_its_requests_wait) {
  Served served;
  CHECK(served.offers("echo"));
  std::shared_ptr<ofl::Memory> memory;
  CHECK(ofl::Memory::create(nullptr, 1U << 16, false, memory));
  CHECK(memory->register_with(ofl::host_registrar()));
  const ofl::Part part{memory->bytes().data(), memory->bytes().size()};
  for (std::uint64_t sequence = 1; sequence <= 8; ++sequence) {
    CHECK(served.hears(ofl::wire::make_header(FrameType::request, sequence, 0)));
    CHECK(served.connection().reply(sequence, {&part, 1}, memory.get()) == OFL_OK);
  }
  CHECK(!memory->idle());  // more than the socket takes
  CHECK(!served.hears(garbled()));
  served.connection().finish();
  CHECK(memory->idle());
  CHECK(served.cut());
}

// A frame of which nobody can keep the rest would otherwise go on with the next one's bytes.
TEST(a_reply_that_does_not_fit_into_memory_ends_the_connection) {
  Served served;
  CHECK(served.offers("echo"));
  const std::vector<std::byte> body(1U << 16);
  const ofl::Part part{body.data(), body.size()};
  ofl::Status status = OFL_OK;
  for (std::uint64_t sequence = 1; sequence <= 8 && status == OFL_OK; ++sequence) {
    CHECK(served.hears(ofl::wire::make_header(FrameType::request, sequence, 0)));
    no_arrays = true;
    status = served.connection().reply(sequence, {&part, 1}, nullptr);
    no_arrays = false;
  }
  CHECK(status == OFL_UNKNOWN);
  CHECK(served.cut());
}
