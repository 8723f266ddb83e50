// The server's half of the negotiation: what is refused, with which words, and what is agreed on.

#include <algorithm>
#include <cstring>

#include "connection.hpp"
#include "link.hpp"

namespace ofl {

namespace {

using wire::AcceptBody;
using wire::ConnectBody;
using wire::RefuseBody;
using wire::RefuseCode;

std::string range_text(std::uint16_t low, std::uint16_t high) {
  return low == high ? "version " + std::to_string(low) : "versions " + std::to_string(low) + " to " + std::to_string(high);
}

}  // namespace

// Listeners for RDMA take TCP clients too, so that one port serves both.
bool Connection::serves(wire::Transport transport) const noexcept {
  return transport == listener_ || (listener_ == wire::Transport::rdma && transport == wire::Transport::tcp);
}

bool Connection::full() const noexcept {
  return shared_.open_connections.load(std::memory_order_relaxed) >= shared_.options.connections_max;
}

std::string Connection::full_text() const {
  return "all " + std::to_string(shared_.options.connections_max) + " connections of this server are in use";
}

// Empty when there is nothing to refuse.
std::string Connection::refusal(const ConnectBody& offer, RefuseCode& code) {
  const ServerOptions& ours = shared_.options;
  if (!serves(static_cast<wire::Transport>(offer.transport))) {
    code = RefuseCode::transport;
    return "this listener does not offer the transport that was asked for";
  }
  const bool proves = offer.authentication == static_cast<std::uint8_t>(wire::Authentication::hmac_sha256);
  if (proves != shared_.key.has_value()) {
    code = RefuseCode::authentication;
    return proves ? "this server has no key file, and the client asks for proof"
                  : "this server wants proof: the client must use its key file";
  }
  const std::string service(wire::service_of(offer));
  if (service != ours.service) {
    code = RefuseCode::service;
    return "this server offers service '" + ours.service + "', not '" + service + "'";
  }
  if (offer.version_max < ours.version_min || offer.version_min > ours.version_max) {
    code = RefuseCode::version;
    return "service '" + service + "' is offered here in " + range_text(ours.version_min, ours.version_max) +
           ", and the client speaks " + range_text(offer.version_min, offer.version_max);
  }
  if (full()) {
    code = RefuseCode::full;
    return full_text();
  }
  return {};
}

void Connection::negotiate() {
  std::memcpy(&offer_, small_.data(), sizeof offer_);
  if (const char* fault = wire::connect_fault(offer_)) {
    shared_.counters.add(Counter::garbage);
    end(fault);
    return;
  }
  RefuseCode code{};
  const std::string words = refusal(offer_, code);
  if (!words.empty()) {
    if (code == RefuseCode::authentication) {
      shared_.counters.add(Counter::auth_failures);
      if (shared_.key) shared_.failures.failed(address_, now_ns());
    }
    refuse(code, words);
    return;
  }
  version_ = std::min(offer_.version_max, shared_.options.version_max);
  frame_bytes_max_ = std::min(offer_.frame_bytes_max, shared_.options.frame_bytes_max);
  heartbeat_ = offer_.heartbeat_ms * kMillisecond;
  loss_ = offer_.loss_ms * kMillisecond;
  if (!shared_.key) {
    accept();
    return;
  }
  if (!fill_nonce(challenge_.nonce)) {
    end("no random bytes for a challenge");
    return;
  }
  const Part part{&challenge_, sizeof challenge_};
  const std::scoped_lock lock(mutex_);
  phase_ = Phase::proving;
  say_locked(wire::FrameType::challenge, {&part, 1});
}

void Connection::prove() {
  wire::ProofBody proof;
  std::memcpy(&proof, small_.data(), sizeof proof);
  if (proves_client(*shared_.key, offer_, challenge_, proof)) {
    shared_.failures.succeeded(address_);
    accept();
    return;
  }
  shared_.counters.add(Counter::auth_failures);
  shared_.failures.failed(address_, now_ns());
  refuse(RefuseCode::authentication, "the proof is wrong: the client holds another key");
}

void Connection::accept() {
  if (full()) {  // others were faster while this client proved itself
    refuse(RefuseCode::full, full_text());
    return;
  }
  AcceptBody body{};
  body.boot_nonce = shared_.boot_nonce;
  body.frame_bytes_max = frame_bytes_max_;
  body.version = version_;
  body.calls_max = shared_.options.calls_max;
  body.transport = offer_.transport;
  body.authentication = offer_.authentication;
  if (shared_.key) {
    const Outcome outcome = server_proof(*shared_.key, offer_, challenge_, body);
    if (!outcome) {
      refuse(RefuseCode::authentication, outcome.text);
      return;
    }
  }
  const bool links = offer_.transport != static_cast<std::uint8_t>(wire::Transport::tcp);
  if (!links) announce_start();
  const Part part{&body, sizeof body};
  const std::scoped_lock lock(mutex_);
  phase_ = links ? Phase::linking : Phase::open;
  say_locked(wire::FrameType::accept, {&part, 1});
}

// The client's link frame is here: make our end, and let the new wire take over.
void Connection::link(std::uint32_t body_bytes) {
  if (full()) {  // others were linked since this client was accepted
    refuse(RefuseCode::full, full_text());
    return;
  }
  const auto transport = static_cast<wire::Transport>(offer_.transport);
  auto link = transport == wire::Transport::rdma ? make_rdma_link() : make_shm_link();
  Outcome outcome = link->open(Role::server, control_->descriptor(), frame_bytes_max_);
  if (outcome) outcome = link->join({small_.data(), body_bytes}, control_->passed());
  if (!outcome) {
    shared_.counters.add(Counter::link_failures);
    refuse(RefuseCode::transport, outcome.text);
    return;
  }
  const Part part{link->ours().data(), link->ours().size()};
  const std::scoped_lock lock(mutex_);
  control_->pass(link->descriptors());
  say_locked(wire::FrameType::link, {&part, 1});
  if (outbox_.empty()) {
    linked_ = std::move(link);
  } else {
    shared_.counters.add(Counter::link_failures);
    end("the client does not read its link frame");
  }
}

// Outside of the control socket's own functions: from here on it only tells that the client is gone.
bool Connection::take_over() {
  const auto link = std::move(linked_);
  if (control_->mid_frame()) return end("bytes came after the link frame");
  std::unique_ptr<Channel> channel;
  const Outcome outcome = link->finish(control_->take_socket(), channel);
  if (!outcome) {
    shared_.counters.add(Counter::link_failures);
    return end(outcome.text);
  }
  announce_start();
  const std::scoped_lock lock(mutex_);
  channel_ = std::move(channel);
  control_ = nullptr;
  bytes_seen_ = 0;
  frame_begun_ = 0;
  last_heard_ = last_sent_ = now_ns();
  phase_ = Phase::open;
  switched_ = true;
  return true;
}

void Connection::announce_start() {
  std::list<Event> greeting(1);
  Event& event = greeting.front();
  event.kind = OFL_EVENT_CONNECTED;
  event.connection = id_;
  event.version = version_;
  event.received = now_ns();
  event.text = peer_;
  farewell_.resize(1);
  farewell_.front().kind = OFL_EVENT_DISCONNECTED;
  farewell_.front().connection = id_;
  // Nothing throws from here on: what is counted and announced is open, and will end.
  announced_ = true;
  shared_.open_connections.fetch_add(1, std::memory_order_relaxed);
  shared_.counters.add(Counter::accepted);
  shared_.events.push(std::move(greeting));
}

void Connection::refuse(RefuseCode code, const std::string& text) {
  shared_.counters.add(Counter::refused);
  const RefuseBody body{static_cast<std::uint32_t>(code), 0};
  const std::string words = wire::printable(text);
  const Part parts[] = {{&body, sizeof body}, {words.data(), words.size()}};
  const std::scoped_lock lock(mutex_);
  say_locked(wire::FrameType::refuse, parts);
  drain_locked(now_ns());
}

}  // namespace ofl
