#include "client_connector.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "process.hpp"

namespace engram {

namespace {

constexpr unsigned kDoublingsMax = 40;  // more would not fit into 64 bits

}  // namespace

Connector::Connector(const ClientSettings& settings, const Stagings& stagings, ClientCounters& counters)
    : settings_(settings), stagings_(stagings), counters_(counters), random_(random_nonce()) {}

Outcome Connector::connect_once(std::unique_ptr<Connection>& connection) {
  bool final = false;
  const Outcome outcome = open(connection, final);
  const std::scoped_lock lock(mutex_);
  text_ = outcome ? connection->wire() : outcome.text;
  final_ = final;
  failures_ = outcome ? 0 : 1;
  return outcome;
}

void Connector::start(bool connected) {
  wanted_ = !connected;
  connected_.store(connected, std::memory_order_release);
  thread_ = start_quiet_thread("engram-connect", [this] { run(); });
}

void Connector::end() noexcept {
  {
    const std::scoped_lock lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Connector::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return ending_ || dead_ || (wanted_ && !offered_); });
    if (dead_) {
      std::unique_ptr<Connection> dead = std::move(dead_);
      lock.unlock();
      dead.reset();
      lock.lock();
      continue;
    }
    if (ending_) return;
    const auto span = std::chrono::nanoseconds(pause(final_));
    if (changed_.wait_for(lock, span, [&] { return ending_; })) continue;
    attempt(lock);
  }
}

void Connector::attempt(std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  std::unique_ptr<Connection> connection;
  bool final = false;
  Outcome outcome;
  try {
    outcome = open(connection, final);
  } catch (const std::exception& error) {
    outcome = failure(ENGRAM_SYSTEM, error.what());
  }
  lock.lock();
  final_ = final;
  text_ = outcome ? connection->wire() : outcome.text;
  tell(outcome, final);
  if (!outcome) {
    ++failures_;
    return;
  }
  offered_ = std::move(connection);
  offers_.store(true, std::memory_order_release);  // pairs with offers
}

Outcome Connector::open(std::unique_ptr<Connection>& connection, bool& final) {
  const Outcome outcome =
      Connection::open(settings_, stagings_, now_ns() + settings_.connect_timeout, connection, final);
  if (outcome) {
    counters_.add(Counter::opens);
  } else {
    counters_.add(outcome.status == ENGRAM_REFUSED && final ? Counter::opens_refused : Counter::connects_failed);
  }
  return outcome;
}

// None before the first attempt; then doubled each time, and drawn from its upper half so that many clients of one server
// do not come at once.
Nanoseconds Connector::pause(bool final) {
  if (failures_ == 0) return 0;
  Nanoseconds span = settings_.retry_max;
  const unsigned doublings = std::min(failures_ - 1, kDoublingsMax);
  if (!final && settings_.retry <= settings_.retry_max >> doublings) span = settings_.retry << doublings;
  return std::uniform_int_distribution<Nanoseconds>(span / 2, span)(random_);
}

void Connector::tell(const Outcome& outcome, bool final) {
  if (outcome) said_.clear();
  if (outcome || !final || outcome.text == said_) return;
  said_ = outcome.text;
  std::fprintf(stderr, "engram: %s; rows come from the local shards\n", outcome.text.c_str());
}

std::unique_ptr<Connection> Connector::take() {
  const std::scoped_lock lock(mutex_);
  offers_.store(false, std::memory_order_relaxed);
  wanted_ = false;
  connected_.store(true, std::memory_order_release);
  return std::move(offered_);
}

void Connector::lost(std::unique_ptr<Connection> connection, const std::string& why) {
  counters_.add(Counter::connections_ended);
  {
    const std::scoped_lock lock(mutex_);
    connected_.store(false, std::memory_order_release);
    text_ = "the connection ended: " + why;
    failures_ = connection->proved ? 1 : failures_ + 1;
    dead_ = std::move(connection);
    wanted_ = true;
  }
  changed_.notify_all();
}

bool Connector::connected(std::string& text) {
  const std::scoped_lock lock(mutex_);
  text = text_;
  return connected_.load(std::memory_order_acquire);
}

void Connector::abandon() noexcept {
  if (offered_) offered_->abandon();
}

}  // namespace engram
