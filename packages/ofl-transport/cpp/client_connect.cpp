// How a client connects: judge its key, resolve, connect, negotiate, prove, link, all under one deadline.

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "auth.hpp"
#include "client.hpp"
#include "link.hpp"
#include "process.hpp"
#include "socket_channel.hpp"

namespace ofl {

namespace {

using wire::AcceptBody;
using wire::ConnectBody;
using wire::FrameHeader;
using wire::FrameType;

constexpr std::size_t kAnswerBytes =
    std::max({sizeof(AcceptBody), sizeof(wire::RefuseBody) + wire::kTextBytesMax, wire::kLinkBytesMax});

// Receives one answer of the server; whatever may follow an accept in the same read is looked at too.
class Answer final : public Inbox {
 public:
  explicit Answer(FrameType wanted) noexcept : wanted_(wanted) {}

  Landing landing(const FrameHeader& header) noexcept override {
    const auto type = static_cast<FrameType>(header.type);
    if (type_) return after_answer(type);
    if (type == FrameType::heartbeat && wanted_ == FrameType::link) return {};
    if (type != wanted_ && type != FrameType::refuse && type != FrameType::close)
      return {nullptr, "type is no answer to what was sent"};
    return {body_.data(), nullptr};
  }
  void completed(const FrameHeader& header) noexcept override {
    const auto type = static_cast<FrameType>(header.type);
    if (type_ || type == FrameType::heartbeat) return;
    type_ = type;
    bytes_ = header.body_bytes;
  }

  const std::optional<FrameType>& type() const noexcept { return type_; }
  bool closed_after() const noexcept { return closed_after_; }
  std::span<const std::byte> body() const noexcept { return {body_.data(), bytes_}; }
  template <typename Record>
  Record as() const noexcept {
    Record record;
    std::memcpy(&record, body_.data(), sizeof record);
    return record;
  }
  std::string text() const {
    const std::size_t skip = type_ == FrameType::refuse ? sizeof(wire::RefuseBody) : 0;
    return wire::printable({reinterpret_cast<const char*>(body_.data()) + skip, bytes_ - skip});
  }

 private:
  // What a server may send before our first request, arriving in the same read as its answer.
  Landing after_answer(FrameType type) noexcept {
    if (type != FrameType::heartbeat && type != FrameType::close) return {nullptr, "type is out of place before a request"};
    closed_after_ = closed_after_ || type == FrameType::close;
    return {};
  }

  const FrameType wanted_;
  std::array<std::byte, kAnswerBytes> body_{};
  std::optional<FrameType> type_;
  std::size_t bytes_ = 0;
  bool closed_after_ = false;
};

// One negotiation on a control socket.
class Negotiation {
 public:
  Negotiation(const ClientOptions& options, std::optional<Key> key, Nanoseconds deadline, UniqueFd socket,
              Attempt& attempt, Agreement& agreement)
      : options_(options),
        deadline_(deadline),
        socket_(std::make_unique<SocketChannel>(std::move(socket))),
        agreement_(agreement),
        key_(std::move(key)),
        attempt_(attempt) {
    attempt_.begin_stage();
  }

  Outcome run(std::unique_ptr<Channel>& channel) {
    Outcome outcome = prepare();
    if (outcome) outcome = agree();
    if (!outcome) return outcome;
    if (options_.transport != wire::Transport::tcp) return link(channel);
    channel = std::move(socket_);
    return {};
  }

 private:
  Outcome prepare();
  Outcome agree();
  Outcome prove(const wire::ChallengeBody& challenge);
  Outcome judge(const AcceptBody& accept);
  Outcome link(std::unique_ptr<Channel>& channel);
  Outcome send(FrameType type, const void* body, std::size_t bytes);
  Outcome await(Answer& answer);
  const std::string& peer() const noexcept { return agreement_.peer_address; }

  const ClientOptions& options_;
  const Nanoseconds deadline_;
  std::unique_ptr<SocketChannel> socket_;
  Agreement& agreement_;
  const std::optional<Key> key_;  // none: no authentication
  ConnectBody offer_{};
  wire::ChallengeBody challenge_{};
  Attempt& attempt_;
};

ConnectBody make_offer(const ClientOptions& options) {
  ConnectBody body{};
  body.boot_nonce = process_nonce();
  body.frame_bytes_max = options.frame_bytes_max;
  body.version_min = options.version_min;
  body.version_max = options.version_max;
  body.heartbeat_ms = static_cast<std::uint32_t>(options.heartbeat / kMillisecond);
  body.loss_ms = static_cast<std::uint32_t>(options.loss / kMillisecond);
  body.transport = static_cast<std::uint8_t>(options.transport);
  std::memcpy(body.service, options.service.data(), options.service.size());
  return body;
}

Outcome check_options(const ClientOptions& options) {
  if (options.spin < 0) return failure(OFL_INVALID, "spin_ns must not be negative");
  if (options.service.empty() || options.service.size() > wire::kServiceBytes)
    return failure(OFL_INVALID, "service must have 1 to 64 characters");
  if (options.heartbeat < wire::kHeartbeatMsMin * kMillisecond || options.heartbeat > wire::kHeartbeatMsMax * kMillisecond)
    return failure(OFL_INVALID, "heartbeat_ns must be from 10 ms to 60 s");
  if (options.loss < 2 * options.heartbeat || options.loss > 600 * kSecond)
    return failure(OFL_INVALID, "loss_ns must be at least twice heartbeat_ns and at most 600 s");
  if (const char* fault = wire::connect_fault(make_offer(options)))
    return failure(OFL_INVALID, std::string(fault).substr(std::strlen("connect.")));
  return {};
}

Outcome Negotiation::prepare() {
  offer_ = make_offer(options_);
  if (!key_) return {};
  offer_.authentication = static_cast<std::uint8_t>(wire::Authentication::hmac_sha256);
  return fill_nonce(offer_.nonce);
}

Outcome Negotiation::send(FrameType type, const void* body, std::size_t bytes) {
  const Part part{body, bytes};
  Outgoing frame(wire::make_header(type, 0, bytes), {&part, 1});
  if (socket_->send(frame) == Progress::done) return {};
  return failure(OFL_LOST, peer() + " closed the connection during the negotiation");
}

Outcome Negotiation::await(Answer& answer) {
  while (!answer.type()) {
    const Wait wait = wait_for(*socket_, POLLIN, deadline_);
    if (wait == Wait::interrupted) attempt_.signal_came();
    if (wait == Wait::interrupted || wait == Wait::again) {
      if (attempt_.ends()) return attempt_.interrupted();
      continue;
    }
    if (wait == Wait::deadline)
      return failure(OFL_DEADLINE, peer() + " accepted the connection but did not answer before the deadline");
    const Progress progress = socket_->receive(answer, sizeof(FrameHeader) + sizeof(AcceptBody));
    if (answer.type()) break;
    if (progress == Progress::closed)
      return failure(OFL_LOST, peer() + " closed the connection during the negotiation");
    if (progress == Progress::failed && socket_->fault() == kResetFault)
      return failure(OFL_LOST, peer() + " closed the connection during the negotiation");
    if (progress == Progress::failed)
      return failure(OFL_LOST, peer() + " does not speak this protocol or broke it: " + socket_->fault());
  }
  if (answer.type() == FrameType::refuse) return failure(OFL_REFUSED, peer() + " refused: " + answer.text());
  if (answer.type() == FrameType::close) return failure(OFL_LOST, peer() + " closed the connection: " + answer.text());
  if (answer.closed_after()) return failure(OFL_LOST, peer() + " closed the connection right after the negotiation");
  return {};
}

Outcome Negotiation::agree() {
  Outcome outcome = send(FrameType::connect, &offer_, sizeof offer_);
  if (outcome && key_) {
    Answer challenge(FrameType::challenge);
    outcome = await(challenge);
    if (outcome) outcome = prove(challenge.as<wire::ChallengeBody>());
  }
  if (!outcome) return outcome;
  Answer accept(FrameType::accept);
  outcome = await(accept);
  return outcome ? judge(accept.as<AcceptBody>()) : outcome;
}

Outcome Negotiation::prove(const wire::ChallengeBody& challenge) {
  challenge_ = challenge;
  wire::ProofBody proof{};
  Outcome outcome = client_proof(*key_, offer_, challenge_, proof);
  return outcome ? send(FrameType::proof, &proof, sizeof proof) : outcome;
}

Outcome Negotiation::judge(const AcceptBody& accept) {
  if (const char* fault = wire::accept_fault(accept, offer_))
    return failure(OFL_LOST, peer() + " broke the protocol: " + fault);
  if (key_ && !proves_server(*key_, offer_, challenge_, accept))
    return failure(OFL_REFUSED, peer() + " does not hold the key of " + *options_.key_file);
  agreement_.boot_nonce = accept.boot_nonce;
  agreement_.frame_bytes_max = accept.frame_bytes_max;
  agreement_.calls_max = accept.calls_max;
  agreement_.version = accept.version;
  agreement_.authenticated = key_.has_value();
  return {};
}

Outcome Negotiation::link(std::unique_ptr<Channel>& channel) {
  const auto link = options_.transport == wire::Transport::rdma ? make_rdma_link() : make_shm_link();
  Outcome outcome = link->open(Role::client, socket_->descriptor(), agreement_.frame_bytes_max);
  if (!outcome) return outcome;
  outcome = send(FrameType::link, link->ours().data(), link->ours().size());
  if (!outcome) return outcome;
  Answer answer(FrameType::link);
  outcome = await(answer);
  if (!outcome) return outcome;
  if (socket_->mid_frame()) return failure(OFL_LOST, peer() + " sent more than its link frame");
  outcome = link->join(answer.body(), socket_->passed());
  if (!outcome) return {outcome.status, peer() + ": " + outcome.text};
  return link->finish(socket_->take_socket(), channel);
}

Outcome connect_addresses(const ClientOptions& options, Nanoseconds deadline, UniqueFd& socket, Attempt& attempt) {
  std::vector<Address> addresses;
  Outcome outcome = resolve(options.host, options.port, deadline, addresses);
  if (!outcome) return outcome;
  if (options.bind.empty()) return connect_socket(addresses, nullptr, deadline, socket, attempt);
  std::vector<Address> local;
  outcome = resolve(options.bind, 0, deadline, local);
  if (!outcome) return outcome;
  const auto other_family = [&](const Address& address) { return address.family() != local.front().family(); };
  if (addresses.size() > 1) std::erase_if(addresses, other_family);
  if (addresses.empty())
    return failure(OFL_INVALID, "host " + options.host + " has no address of the family of bind " + options.bind);
  return connect_socket(addresses, &local.front(), deadline, socket, attempt);
}

Outcome connect_control(const ClientOptions& options, Nanoseconds deadline, UniqueFd& socket, Attempt& attempt,
                        Agreement& agreement) {
  if (options.transport == wire::Transport::shm) {
    agreement.peer_address = "shm://" + options.host;
    return connect_name(options.host, deadline, socket, attempt);
  }
  Outcome outcome = connect_addresses(options, deadline, socket, attempt);
  if (!outcome) return outcome;
  agreement.peer_address = peer_address(socket.get()).text();
  agreement.local_address = local_address(socket.get()).text();
  return {};
}

}  // namespace

Outcome open_channel(const ClientOptions& options, Nanoseconds deadline, std::unique_ptr<Channel>& channel,
                     Agreement& agreement) {
  Outcome outcome = check_options(options);
  // Before anything is sent: a server should not count, nor wait for, a client that cannot prove anything.
  std::optional<Key> key;
  if (outcome && options.key_file) outcome = load_key(*options.key_file, key.emplace());
  if (outcome && key) outcome = hmac_available();
  if (!outcome) return outcome;
  UniqueFd socket;
  Attempt attempt(options.abandoned);
  outcome = connect_control(options, deadline, socket, attempt, agreement);
  if (!outcome) return outcome;
  return Negotiation(options, std::move(key), deadline, std::move(socket), attempt, agreement).run(channel);
}

}  // namespace ofl
