// The server's loop: who leads it, what one turn does, and what becomes of its connections.

#include <algorithm>
#include <array>
#include <chrono>

#include <sys/epoll.h>

#include "server.hpp"
#include "server_tags.hpp"

namespace ofl {

namespace {

constexpr std::size_t kEventsPerTurn = 64;
constexpr Nanoseconds kLate = kSecond / 2;  // a sweep this late means that we were stopped ourselves
constexpr unsigned kLooksPerClock = 16;  // a look at a ring costs less than one at the clock
constexpr unsigned kReadsPerClock = 4;   // the same for a socket
constexpr unsigned kLooksPerWait = 64;   // looks at the hot connections for one at all descriptors
// The longest that the hot connections alone are looked at, where they always have something.
constexpr Nanoseconds kHotAlone = kMillisecond / 10;
constexpr auto kKeeperNap = std::chrono::milliseconds(20);

}  // namespace

// Pairs with the release of whoever led before: what the leader owns passes on.
bool Server::take_lead(Leader who) noexcept {
  Leader nobody = Leader::none;
  return leader_.compare_exchange_strong(nobody, who, std::memory_order_acquire, std::memory_order_relaxed);
}

// Only the keeper can stand in the way, since one consumer at a time is in `next`.
void Server::lead_as_consumer() {
  if (take_lead(Leader::consumer)) return;
  std::unique_lock lock(leader_mutex_);
  ++claims_;
  while (!take_lead(Leader::consumer)) {
    kick();
    leader_changed_.wait(lock);
  }
  --claims_;
}

// No notification: the keeper looks by itself, and telling it would cost a system call in every round.
void Server::stop_leading() noexcept {
  consumer_left_.store(now_, std::memory_order_relaxed);
  leader_.store(Leader::none, std::memory_order_release);
}

void Server::call_keeper() {
  bool called = false;  // what is read after the lock is another caller's by then
  {
    const std::scoped_lock lock(leader_mutex_);
    called = leader_.load(std::memory_order_relaxed) == Leader::none;
    keeper_called_ = called;
  }
  if (called) {
    leader_changed_.notify_all();
  } else {
    kick();  // whoever leads may sleep without having asked for room on a wire that has no such event of its own
  }
}

bool Server::keeper_may_lead() {
  // Pairs with stop_leading: whoever sees nobody lead sees when the consumer left.
  if (leader_.load(std::memory_order_acquire) != Leader::none || claims_ != 0) return false;
  return keeper_called_ || now_ns() - consumer_left_.load(std::memory_order_relaxed) >= kTakeover;
}

void Server::keep() {
  std::unique_lock lock(leader_mutex_);
  while (!stopping_) {
    if (!keeper_may_lead() || !take_lead(Leader::keeper)) {
      leader_changed_.wait_for(lock, kKeeperNap);
      continue;
    }
    while (!stopping_ && claims_ == 0) {
      lock.unlock();
      const bool whole = turn_as_keeper();
      lock.lock();
      if (!whole) leader_changed_.wait_for(lock, kKeeperNap);
    }
    keeper_called_ = false;
    leader_.store(Leader::none, std::memory_order_release);
    leader_changed_.notify_all();
  }
}

// A turn that ran out of memory has lost nothing: descriptors go on telling of what was not taken.  False: it was one.
bool Server::turn_as_keeper() noexcept {
  try {
    turn(INT64_MAX, 0);
    return true;
  } catch (...) {
    return false;
  }
}

// Work for the leader that no descriptor shows while it does not sleep.
bool Server::wanted_elsewhere() const noexcept {
  return claims_.load(std::memory_order_relaxed) > 0 || woken_.load(std::memory_order_relaxed) ||
         stopping_.load(std::memory_order_relaxed);
}

// `spin_ends` in the past: sleep at once.
void Server::turn(Nanoseconds deadline, Nanoseconds spin_ends) {
  if (listeners_paused_ && shared_.events.size() < kEventsMax / 2) pause_listeners(false);
  if (look(spin_ends)) {
    if (now_ >= sweep_due_) sweep(now_ns());
    return;
  }
  const bool idle = arm_cheap();
  wait_and_handle(idle ? remaining_ms(std::min(deadline, sweep_due_)) : 0);
  // By the exact clock: one that lags would send us back to sleep for no time at all, again and again.
  now_ = now_ns();
  if (now_ >= sweep_due_) sweep(now_);
}

// Looks without sleeping until something happened that ends the turn.  False: nothing did.
bool Server::look(Nanoseconds spin_ends) {
  if (now_ < spin_ends && now_ - looked_at_all_ >= kHotAlone) {  // or who is always ready would keep the others out
    poll_cheap();
    wait_and_handle(0);
    if (shared_.anything() || wanted_elsewhere()) return true;
  }
  for (unsigned round = 0; now_ < spin_ends; ++round) {
    poll_cheap();
    if (shared_.anything()) return true;
    if (hot_) look_at_hot();
    if (shared_.anything()) return true;
    if (round % kLooksPerWait == kLooksPerWait - 1) {
      wait_and_handle(0);
      if (shared_.anything() || wanted_elsewhere()) return true;
    }
    if (round % (hot_ ? kReadsPerClock : kLooksPerClock) == 0) now_ = now_ns();
  }
  return false;
}

void Server::poll_cheap() {
  if (!hot_ && cheap_.size() == 1) cheap_.front()->watch();
  for (std::size_t i = 0; i < cheap_.size();) {
    const std::shared_ptr<Connection>& connection = cheap_[i];
    if (connection->poll()) {
      ++i;
    } else {
      drop(std::shared_ptr<Connection>(connection));  // takes it out of cheap_
    }
  }
}

// Asks every cheap connection for a wake-up.  False: one has something already.
bool Server::arm_cheap() {
  bool idle = true;
  for (const auto& connection : cheap_) {
    const Interest interest = connection->interest();
    const Arm what = interest.read ? Arm::all : Arm::room;
    if ((interest.read || interest.write) && !connection->arm(what)) idle = false;
  }
  if (!idle) poll_cheap();
  return idle;
}

void Server::wait_and_handle(int timeout_ms) {
  looked_at_all_ = now_;
  std::array<epoll_event, kEventsPerTurn> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
  for (int i = 0; i < count; ++i) {  // none after a signal
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    handle(event.data.u64, event.events);
  }
}

void Server::handle(std::uint64_t tag, std::uint32_t events) {
  if (tag == kWakeTag) {
    std::uint64_t count = 0;
    static_cast<void>(!::read(wake_.get(), &count, sizeof count));
    return;
  }
  if ((tag & kListenerBit) != 0) {
    const Listener* listener = nullptr;
    {
      const std::scoped_lock lock(table_mutex_);
      listener = &listeners_[tag & ~kListenerBit];
    }
    accept_from(*listener);
    return;
  }
  if (const auto connection = find(tag)) handle_connection(connection, events);
}

// Tries a socket without asking whether it is readable; most of the time it is not.
void Server::look_at_hot() {
  const Interest before = hot_->interest();
  const bool alive = !before.read || hot_->on_readable();
  if (alive && hot_->interest() == before) return;
  after_reading(std::shared_ptr<Connection>(hot_), alive, before, false);
}

bool Server::handle_connection(const std::shared_ptr<Connection>& connection, std::uint32_t events) {
  const Interest before = connection->interest();
  const bool fresh = connection->unopened();
  const bool room = (events & connection->epoll_events({.read = false, .write = true})) != 0;
  bool alive = true;
  if (before.write && room) alive = connection->on_writable();
  const bool hung_up = (events & (EPOLLHUP | EPOLLERR)) != 0;
  const bool readable = before.read && (events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0;
  if (alive && (readable || hung_up)) alive = connection->on_readable();
  return after_reading(connection, alive, before, fresh);
}

bool Server::after_reading(const std::shared_ptr<Connection>& connection, bool alive, const Interest& before,
                           bool fresh) {
  if (!alive) {
    drop(connection);
    return false;
  }
  if (connection->take_switched()) {
    if (!switch_wire(connection)) {
      shared_.counters.add(Counter::evicted);
      drop(connection);
      return false;
    }
  } else if (connection->interest() != before) {
    update_interest(*connection);
  }
  if (fresh) note_due(*connection);
  if (!connection->cheap_to_poll() && !connection->unopened()) hot_ = connection;
  return true;
}

// Another wire carries the data now: its descriptor takes the socket's place.  False: nobody could look at it.
bool Server::switch_wire(const std::shared_ptr<Connection>& connection) noexcept {
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connection->hangup_descriptor(), nullptr);
  epoll_event event{EPOLLIN, {.u64 = connection->id()}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, connection->descriptor(), &event) != 0) return false;
  if (!connection->cheap_to_poll()) return true;
  try {
    cheap_.push_back(connection);
  } catch (...) {
    return false;
  }
  return true;
}

// The sweep must come as early as the first connection needs it.
void Server::note_due(Connection& connection) { sweep_due_ = std::min(sweep_due_, connection.due(now_ns())); }

void Server::drop(const std::shared_ptr<Connection>& connection) noexcept {
  connection->finish();
  if (shared_.direct_state == ServerShared::Direct::full && shared_.direct_from == connection.get())
    shared_.direct_state = ServerShared::Direct::empty;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connection->descriptor(), nullptr);
  std::erase(cheap_, connection);
  if (hot_ == connection) hot_.reset();
  {
    const std::scoped_lock lock(table_mutex_);
    connections_.erase(connection->id());
  }
  dropped_.notify_all();
  answered_.forget(connection->id());
}

void Server::sweep(Nanoseconds now) {
  const bool forgive = now - sweep_due_ > kLate;
  const auto all = all_connections();  // first: where there is no memory for it, the sweep stays due
  sweep_due_ = INT64_MAX;
  for (const auto& connection : all) {
    // Silence is judged by what is here, told of or not.
    if (connection->reads_late() && !handle_connection(connection, EPOLLIN)) continue;
    if (!connection->check_time(now, forgive)) {
      drop(connection);
      continue;
    }
    sweep_due_ = std::min(sweep_due_, connection->due(now));
    update_interest(*connection);
  }
}

// Any thread.  Another may do the same for what has changed meanwhile, and be overtaken on its way into the kernel: whoever
// comes last there sees the change.
void Server::update_interest(Connection& connection) {
  Interest told;
  do {
    told = connection.interest();
    epoll_event event{connection.epoll_events(told), {.u64 = connection.id()}};
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, connection.descriptor(), &event);
  } while (connection.interest() != told);
}

}  // namespace ofl
