// How a client connects: resolve, connect, and the negotiation, all under one deadline.

#include <array>
#include <cstring>

#include "client.hpp"
#include "process.hpp"
#include "tcp_channel.hpp"

namespace ofl {

namespace {

using wire::AcceptBody;
using wire::ConnectBody;
using wire::FrameHeader;
using wire::FrameType;

// Receives the one answer to our connect frame.
class Answer final : public Inbox {
 public:
  Landing landing(const FrameHeader& header) noexcept override {
    const auto type = static_cast<FrameType>(header.type);
    if (type_) return after_answer(type);
    if (type != FrameType::accept && type != FrameType::refuse && type != FrameType::close)
      return {nullptr, "type is no answer to a connect frame"};
    return {body_.data(), nullptr};
  }
  void completed(const FrameHeader& header) noexcept override {
    if (type_) return;
    type_ = static_cast<FrameType>(header.type);
    bytes_ = header.body_bytes;
  }

  const std::optional<FrameType>& type() const noexcept { return type_; }
  bool closed_after() const noexcept { return closed_after_; }
  AcceptBody accept() const noexcept {
    AcceptBody body;
    std::memcpy(&body, body_.data(), sizeof body);
    return body;
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

  std::array<std::byte, sizeof(wire::RefuseBody) + wire::kTextBytesMax> body_{};
  std::optional<FrameType> type_;
  std::size_t bytes_ = 0;
  bool closed_after_ = false;
};

ConnectBody make_offer(const ClientOptions& options) {
  ConnectBody body{};
  body.boot_nonce = process_nonce();
  body.frame_bytes_max = options.frame_bytes_max;
  body.version_min = options.version_min;
  body.version_max = options.version_max;
  body.heartbeat_ms = static_cast<std::uint32_t>(options.heartbeat / kMillisecond);
  body.loss_ms = static_cast<std::uint32_t>(options.loss / kMillisecond);
  std::memcpy(body.service, options.service.data(), options.service.size());
  return body;
}

Outcome check_options(const ClientOptions& options) {
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

Outcome send_offer(Channel& channel, const ConnectBody& offer, const std::string& peer) {
  const Part part{&offer, sizeof offer};
  Outgoing frame(wire::make_header(FrameType::connect, 0, sizeof offer), {&part, 1});
  if (channel.send(frame) == Progress::done) return {};
  return failure(OFL_LOST, peer + " closed the connection before the negotiation");
}

Outcome await_answer(Channel& channel, Answer& answer, Nanoseconds deadline, const std::string& peer) {
  while (!answer.type()) {
    const Wait wait = channel.wait_readable(deadline);
    if (wait == Wait::interrupted) return failure(OFL_INTERRUPTED, "interrupted by a signal");
    if (wait == Wait::again) continue;
    if (wait == Wait::deadline)
      return failure(OFL_DEADLINE, peer + " accepted the connection but did not answer before the deadline");
    const Progress progress = channel.receive(answer, sizeof(FrameHeader) + sizeof(AcceptBody));
    if (answer.type()) break;
    if (progress == Progress::closed)
      return failure(OFL_LOST, peer + " closed the connection during the negotiation");
    if (progress == Progress::failed)
      return failure(OFL_LOST, peer + " does not speak this protocol or broke it: " + channel.fault());
  }
  return {};
}

Outcome judge_answer(const Answer& answer, const ConnectBody& offer, const std::string& peer, Agreement& agreement) {
  if (answer.type() == FrameType::refuse) return failure(OFL_REFUSED, peer + " refused: " + answer.text());
  if (answer.type() == FrameType::close) return failure(OFL_LOST, peer + " closed the connection: " + answer.text());
  if (answer.closed_after()) return failure(OFL_LOST, peer + " closed the connection right after the negotiation");
  const AcceptBody accept = answer.accept();
  if (const char* fault = wire::accept_fault(accept, offer)) return failure(OFL_LOST, peer + " broke the protocol: " + fault);
  agreement.boot_nonce = accept.boot_nonce;
  agreement.frame_bytes_max = accept.frame_bytes_max;
  agreement.calls_max = accept.calls_max;
  agreement.version = accept.version;
  return {};
}

Outcome connect_addresses(const ClientOptions& options, Nanoseconds deadline, UniqueFd& socket) {
  std::vector<Address> addresses;
  Outcome outcome = resolve(options.host, options.port, deadline, addresses);
  if (!outcome) return outcome;
  if (options.bind.empty()) return connect_socket(addresses, nullptr, deadline, socket);
  std::vector<Address> local;
  outcome = resolve(options.bind, 0, deadline, local);
  if (!outcome) return outcome;
  const auto other_family = [&](const Address& address) { return address.family() != local.front().family(); };
  if (addresses.size() > 1) std::erase_if(addresses, other_family);
  if (addresses.empty())
    return failure(OFL_INVALID, "host " + options.host + " has no address of the family of bind " + options.bind);
  return connect_socket(addresses, &local.front(), deadline, socket);
}

}  // namespace

Outcome open_channel(const ClientOptions& options, Nanoseconds deadline, std::unique_ptr<Channel>& channel,
                     Agreement& agreement) {
  Outcome outcome = check_options(options);
  if (!outcome) return outcome;
  UniqueFd socket;
  outcome = connect_addresses(options, deadline, socket);
  if (!outcome) return outcome;
  agreement.peer_address = peer_address(socket.get()).text();
  agreement.local_address = local_address(socket.get()).text();
  auto fresh = std::make_unique<TcpChannel>(std::move(socket));
  const ConnectBody offer = make_offer(options);
  outcome = send_offer(*fresh, offer, agreement.peer_address);
  if (!outcome) return outcome;
  Answer answer;
  outcome = await_answer(*fresh, answer, deadline, agreement.peer_address);
  if (!outcome) return outcome;
  outcome = judge_answer(answer, offer, agreement.peer_address, agreement);
  if (outcome) channel = std::move(fresh);
  return outcome;
}

}  // namespace ofl
