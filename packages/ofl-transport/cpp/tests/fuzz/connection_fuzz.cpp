// Fuzz target: a whole connection of a server, from negotiation to its end, fed with arbitrary bytes in arbitrary pieces
// while a consumer answers, cuts off, or ignores what comes.
//
//     Whatever a client sends, the server says only sound frames, hands out only requests that the client may have open,
//     ends with a reason or not at all, and counts what happened.

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include <sys/socket.h>

#include "auth.hpp"
#include "connection.hpp"
#include "frame_reader.hpp"
#include "stream.hpp"

namespace {

using Direct = ofl::ServerShared::Direct;
using ofl::Counter;
using ofl::wire::FrameHeader;
using ofl::wire::FrameType;

constexpr std::uint32_t kCallsMax = 8;
constexpr std::uint32_t kFrameBytesMax = 1U << 16;
constexpr std::size_t kQueueBytesMax = 1U << 18;

ofl::Key key() {
  ofl::Key key(ofl::kKeyBytesMin);
  std::fill(key.room().begin(), key.room().end(), std::uint8_t{0x2A});
  key.keep(ofl::kKeyBytesMin);
  return key;
}

// The client's ear: what the server says must itself be sound.
class Ear final : public ofl::Inbox {
 public:
  ofl::Landing landing(const FrameHeader& header) noexcept override {
    HOLDS(header.body_bytes <= kFrameBytesMax, "the server keeps its own limit");
    switch (static_cast<FrameType>(header.type)) {
      case FrameType::challenge: return {reinterpret_cast<std::byte*>(&challenge_), nullptr};
      case FrameType::accept: return {reinterpret_cast<std::byte*>(&accept_), nullptr};
      default: return {};
    }
  }
  void completed(const FrameHeader& header) noexcept override {
    const auto type = static_cast<FrameType>(header.type);
    HOLDS(type != FrameType::connect && type != FrameType::request && type != FrameType::cancel && type != FrameType::proof,
          "the server sends no frame of a client");
    challenged_ = challenged_ || type == FrameType::challenge;
    accepted_ = accepted_ || type == FrameType::accept;
  }
  void hear(int socket) {
    std::byte bytes[16384];
    for (;;) {
      const ssize_t got = ::recv(socket, bytes, sizeof bytes, MSG_DONTWAIT);
      if (got <= 0) return;
      HOLDS(reader_.take(*this, {bytes, static_cast<std::size_t>(got)}), "the server says sound frames only");
    }
  }
  bool challenged() const noexcept { return challenged_; }
  bool accepted() const noexcept { return accepted_; }
  bool links() const noexcept { return accept_.transport != static_cast<std::uint8_t>(ofl::wire::Transport::tcp); }
  const ofl::wire::ChallengeBody& challenge() const noexcept { return challenge_; }

 private:
  ofl::FrameReader reader_;
  ofl::wire::ChallengeBody challenge_{};
  ofl::wire::AcceptBody accept_{};
  bool challenged_ = false;
  bool accepted_ = false;
};

class Rig {
 public:
  Rig(fuzz::Bytes stream, fuzz::Choices& choices) : stream_(stream), choices_(choices) {
    shared_.options.service = "echo";
    shared_.options.version_min = 1;
    shared_.options.version_max = 2;
    shared_.options.frame_bytes_max = kFrameBytesMax;
    shared_.options.connections_max = 4;
    shared_.options.calls_max = kCallsMax;
    shared_.options.handshake = shared_.options.frame = 60 * ofl::kSecond;
    shared_.options.queue_bytes_max = kQueueBytesMax;
    shared_.boot_nonce = 1;
    if (choices_.one_in(4)) shared_.key = key();
    int ends[2];
    HOLDS(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0, "there is a socket pair");
    client_.reset(ends[1]);
    auto control = std::make_unique<ofl::SocketChannel>(ofl::UniqueFd(ends[0]));
    using ofl::wire::Transport;
    const Transport listeners[] = {Transport::tcp, Transport::tcp, Transport::tcp, Transport::shm, Transport::rdma};
    connection_ = std::make_shared<ofl::Connection>(shared_, 1, std::move(control),
                                                    listeners[choices_.below(std::size(listeners))], ofl::Address{}, "fuzz",
                                                    ofl::now_ns());
  }

  void run() {
    bool alive = true;
    std::size_t given = 0;
    while (alive && given < stream_.size()) {
      given += give(stream_.subspan(given, std::min(choices_.piece(), stream_.size() - given)));
      alive = turn();
      if (alive && shared_.key && ear_.challenged() && !proved_ && !choices_.one_in(8)) alive = prove();
    }
    if (alive) {
      client_.reset();
      for (int turns = 0; alive && turns < 64; ++turns) alive = turn();
      HOLDS(!alive, "a connection whose client is gone ends");
    }
    finish();
  }

 private:
  std::size_t give(fuzz::Bytes piece) {
    const ssize_t sent = ::send(client_.get(), piece.data(), piece.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) return static_cast<std::size_t>(sent);
    return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : piece.size();  // shut down: what is left reaches nobody
  }

  // What the server's loop does once the socket is readable, and what its consumer does then.
  bool turn() {
    const bool reads = connection_->interest().read;
    // A consumer that leads takes the first request past the queue.
    const bool leads = choices_.one_in(2);
    if (leads) shared_.direct_state = Direct::empty;
    bool alive = reads ? connection_->on_readable() : true;
    const bool full = shared_.direct_state == Direct::full;
    shared_.direct_state = Direct::off;
    if (full) {
      ofl::Event event = std::move(shared_.direct);
      request(event, connection_->holds(event.sequence));  // it never stood in the queue
    }
    if (alive && connection_->interest().write) alive = connection_->on_writable();
    if (alive) alive = connection_->check_time(ofl::now_ns(), false);
    if (client_.valid()) ear_.hear(client_.get());
    consume(!client_.valid());
    return alive;
  }

  // As a client that knows the key, at the place where a client must.
  bool prove() {
    proved_ = true;
    ofl::wire::ConnectBody offer;
    std::memcpy(&offer, stream_.data() + sizeof(FrameHeader), sizeof offer);
    ofl::wire::ProofBody proof;
    HOLDS(ofl::client_proof(key(), offer, ear_.challenge(), proof).status == OFL_OK, "a proof is made");
    const FrameHeader header = ofl::wire::make_header(FrameType::proof, 0, sizeof proof);
    give({reinterpret_cast<const std::uint8_t*>(&header), sizeof header});
    give({reinterpret_cast<const std::uint8_t*>(&proof), sizeof proof});
    return turn();
  }

  // Takes some of the events, all of them if `all`; answers, cuts off, or lets lie.
  void consume(bool all) {
    ofl::Event event;
    while ((all || !choices_.one_in(3)) && shared_.events.pop(event)) {
      if (event.kind == OFL_EVENT_CONNECTED) {
        HOLDS(++connected_ == 1, "a connection begins once");
        HOLDS(event.version >= 1 && event.version <= 2, "a version is one of the server's");
      } else if (event.kind == OFL_EVENT_DISCONNECTED) {
        HOLDS(++disconnected_ <= connected_, "only what began ends, and once");
        HOLDS(!event.text.empty(), "an end has a reason");
      } else {
        bool resumed = false;
        request(event, connection_->take_request(event.sequence, event.body.bytes, resumed));
      }
    }
  }

  void request(ofl::Event& event, bool wanted) {
    HOLDS(connected_ == 1, "requests come after the connection");
    HOLDS(event.sequence != 0 && event.body.bytes <= kFrameBytesMax, "a request is within the limits");
    HOLDS(!shared_.key || proved_, "nobody is served without a proof");
    ++requests_;
    unsigned sum = 0;  // every byte of the body can be read
    for (std::size_t i = 0; i < event.body.bytes; ++i) sum += static_cast<unsigned>(event.body.memory.get()[i]);
    HOLDS(event.body.bytes > 0 || sum == 0, "an empty body has no bytes");
    const std::size_t action = choices_.below(8);
    if (action == 0) return;  // never answered
    if (action == 1) {
      connection_->disconnect("the consumer\nhad enough");
      return;
    }
    const std::vector<char> reply(choices_.below(3) == 0 ? choices_.below(kFrameBytesMax + 8) : choices_.below(64), 'r');
    const ofl::Part part{reply.data(), reply.size()};
    const ofl::Status status = connection_->reply(event.sequence, {&part, 1}, nullptr);
    HOLDS(wanted || status == OFL_UNKNOWN, "what was cancelled is not answered");
    // A client that cancels and uses the number again, against the rule, may offer another room by now: its own loss.
    HOLDS(status == OFL_OK || status == OFL_UNKNOWN || status == OFL_TOO_LARGE, "a reply is taken, late or too large");
    HOLDS(status != OFL_OK || reply.size() <= kFrameBytesMax, "a reply keeps to the limit");
    HOLDS(status != OFL_OK || connection_->reply(event.sequence, {&part, 1}, nullptr) == OFL_UNKNOWN,
          "a call is answered once");
  }

  std::uint64_t count(Counter counter) const { return shared_.counters.at(static_cast<std::size_t>(counter)); }

  void finish() {
    HOLDS(!connection_->end_reason().empty(), "an end has a reason");
    connection_->finish();
    consume(true);
    HOLDS(shared_.open_connections.load() == 0, "what ended is not open");
    HOLDS(connected_ == disconnected_, "what began has ended");
    HOLDS(count(Counter::accepted) == connected_ && count(Counter::disconnects) == disconnected_, "ends are counted");
    HOLDS(count(Counter::requests) == requests_, "requests are counted");
    HOLDS(count(Counter::refused) + count(Counter::garbage) + count(Counter::oversized) <= 1, "a connection is judged once");
    HOLDS(count(Counter::auth_failures) <= count(Counter::refused), "who cannot prove itself is refused");
    HOLDS(!ear_.accepted() || ear_.links() || connected_ == 1, "who was told yes is there, unless a link comes first");
  }

  fuzz::Bytes stream_;
  fuzz::Choices& choices_;
  ofl::ServerShared shared_;
  ofl::UniqueFd client_;
  std::shared_ptr<ofl::Connection> connection_;
  Ear ear_;
  bool proved_ = false;
  std::uint64_t connected_ = 0;
  std::uint64_t disconnected_ = 0;
  std::uint64_t requests_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::uint64_t seed = 0;
  fuzz::Bytes stream;
  if (!fuzz::split(data, size, seed, stream)) return 0;
  fuzz::Choices choices(seed);
  Rig(stream, choices).run();
  return 0;
}
