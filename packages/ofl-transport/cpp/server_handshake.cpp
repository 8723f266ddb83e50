// The server's half of the negotiation: what is refused, with which words, and what is agreed on.

#include <algorithm>
#include <cstring>

#include "connection.hpp"

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

// Empty when there is nothing to refuse.
std::string Connection::refusal(const ConnectBody& offer, RefuseCode& code) {
  const ServerOptions& ours = shared_.options;
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
  if (shared_.open_connections.load(std::memory_order_relaxed) >= ours.connections_max) {
    code = RefuseCode::full;
    return "all " + std::to_string(ours.connections_max) + " connections of this server are in use";
  }
  return {};
}

void Connection::negotiate() {
  ConnectBody offer;
  std::memcpy(&offer, small_.data(), sizeof offer);
  if (const char* fault = wire::connect_fault(offer)) {
    shared_.counters.add(Counter::garbage);
    end(fault);
    return;
  }
  RefuseCode code{};
  const std::string words = refusal(offer, code);
  if (!words.empty()) {
    refuse(code, words);
    return;
  }
  accept(offer, std::min(offer.version_max, shared_.options.version_max));
}

void Connection::accept(const ConnectBody& offer, std::uint16_t version) {
  version_ = version;
  frame_bytes_max_ = std::min(offer.frame_bytes_max, shared_.options.frame_bytes_max);
  heartbeat_ = offer.heartbeat_ms * kMillisecond;
  loss_ = offer.loss_ms * kMillisecond;
  const AcceptBody body{shared_.boot_nonce, frame_bytes_max_, version, 0, shared_.options.calls_max, 0};
  const Part part{&body, sizeof body};
  shared_.open_connections.fetch_add(1, std::memory_order_relaxed);
  shared_.counters.add(Counter::accepted);
  Event event;
  event.kind = OFL_EVENT_CONNECTED;
  event.connection = id_;
  event.version = version;
  event.received = now_ns();
  event.text = peer_;
  shared_.events.push(std::move(event));
  const std::scoped_lock lock(mutex_);
  phase_ = Phase::open;
  say_locked(wire::FrameType::accept, {&part, 1});
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
