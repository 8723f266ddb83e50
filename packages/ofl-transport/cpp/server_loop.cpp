// The server's loop: who leads it, what one turn does, and how connections come and go.

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>

#include <fcntl.h>
#include <sys/epoll.h>

#include "server.hpp"
#include "server_tags.hpp"
#include "tcp_channel.hpp"

namespace ofl {

namespace {

constexpr std::size_t kEventsPerTurn = 64;
constexpr int kAcceptsPerTurn = 64;
constexpr Nanoseconds kLate = kSecond / 2;  // a sweep this late means that we were stopped ourselves
constexpr auto kKeeperNap = std::chrono::milliseconds(20);

}  // namespace

void Server::lead_as_consumer() {
  std::unique_lock lock(leader_mutex_);
  ++claims_;
  while (leader_ != Leader::none) {
    kick();
    leader_changed_.wait(lock);
  }
  --claims_;
  leader_ = Leader::consumer;
}

// No notification: the keeper looks by itself, and telling it would cost a system call in every round.
void Server::stop_leading() {
  const std::scoped_lock lock(leader_mutex_);
  leader_ = Leader::none;
  consumer_left_ = now_ns();
}

void Server::call_keeper() {
  {
    const std::scoped_lock lock(leader_mutex_);
    if (leader_ != Leader::none) return;  // whoever leads sees it in the epoll set
    keeper_called_ = true;
  }
  leader_changed_.notify_all();
}

bool Server::keeper_may_lead() {
  return leader_ == Leader::none && claims_ == 0 && (keeper_called_ || now_ns() - consumer_left_ >= kTakeover);
}

void Server::keep() {
  std::unique_lock lock(leader_mutex_);
  while (!stopping_) {
    if (!keeper_may_lead()) {
      leader_changed_.wait_for(lock, kKeeperNap);
      continue;
    }
    leader_ = Leader::keeper;
    while (!stopping_ && claims_ == 0) {
      lock.unlock();
      turn(INT64_MAX);
      lock.lock();
    }
    keeper_called_ = false;
    leader_ = Leader::none;
    leader_changed_.notify_all();
  }
}

void Server::turn(Nanoseconds deadline) {
  if (listeners_paused_ && shared_.events.size() < kEventsMax / 2) pause_listeners(false);
  std::array<epoll_event, kEventsPerTurn> events;
  const int timeout = remaining_ms(std::min(deadline, sweep_due_));
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout);
  if (count < 0) return;  // a signal
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) handle(events[i].data.u64, events[i].events);
  const Nanoseconds now = now_ns();
  if (now >= sweep_due_) sweep(now);
}

void Server::handle(std::uint64_t tag, std::uint32_t events) {
  if (tag == kWakeTag) {
    std::uint64_t count = 0;
    static_cast<void>(!::read(wake_.get(), &count, sizeof count));
    return;
  }
  if ((tag & kListenerBit) != 0) {
    const UniqueFd* listener = nullptr;
    {
      const std::scoped_lock lock(table_mutex_);
      listener = &listeners_[tag & ~kListenerBit];
    }
    accept_from(*listener);
    return;
  }
  const auto connection = find(tag);
  if (!connection) return;
  const Interest before = connection->interest();
  const bool fresh = connection->unopened();
  bool alive = true;
  if ((events & EPOLLOUT) != 0) alive = connection->on_writable();
  if (alive && (events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0) alive = connection->on_readable();
  if (!alive) {
    drop(connection);
    return;
  }
  if (connection->interest() != before) update_interest(*connection);
  if (fresh) note_due(*connection);
}

// The sweep must come as early as the first connection needs it.
void Server::note_due(Connection& connection) { sweep_due_ = std::min(sweep_due_, connection.due(now_ns())); }

void Server::accept_from(const UniqueFd& listener) {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    if (shared_.events.size() >= kEventsMax) {
      pause_listeners(true);
      return;
    }
    UniqueFd socket(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.valid()) {
      adopt(std::move(socket));
    } else if (errno == EMFILE || errno == ENFILE) {
      shed_one(listener);
    } else if (errno != EINTR && errno != ECONNABORTED) {
      return;
    }
  }
}

// Descriptors have run out: a waiting connection would wake the loop for ever, so it is taken and closed.
void Server::shed_one(const UniqueFd& listener) {
  spare_.reset();
  UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  spare_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  shared_.counters.add(Counter::evicted);
}

void Server::adopt(UniqueFd socket) {
  set_no_delay(socket.get());
  const Nanoseconds now = now_ns();
  const std::uint64_t id = next_id_++;
  const int fd = socket.get();
  std::string peer = peer_address(fd).text();
  auto channel = std::make_unique<TcpChannel>(std::move(socket));
  auto connection = std::make_shared<Connection>(shared_, id, std::move(channel), std::move(peer), now);
  evict_oldest();
  {
    const std::scoped_lock lock(table_mutex_);
    connections_.emplace(id, connection);
  }
  epoll_event event{EPOLLIN, {.u64 = id}};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
  // A client's connect frame is usually here already: one turn less for it.
  if (!connection->on_readable()) {
    drop(connection);
  } else {
    note_due(*connection);
  }
}

// A flood of silent connections must not keep others out: the oldest that has not negotiated gives way.
void Server::evict_oldest() {
  std::shared_ptr<Connection> oldest;
  std::size_t unopened = 0;
  for (const auto& connection : all_connections()) {
    if (!connection->unopened()) continue;
    ++unopened;
    if (!oldest || connection->id() < oldest->id()) oldest = connection;
  }
  if (unopened < shared_.options.pending_max) return;
  shared_.counters.add(Counter::evicted);
  drop(oldest);
}

void Server::drop(const std::shared_ptr<Connection>& connection) {
  connection->finish();
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connection->descriptor(), nullptr);
  const std::scoped_lock lock(table_mutex_);
  connections_.erase(connection->id());
}

void Server::sweep(Nanoseconds now) {
  const bool forgive = now - sweep_due_ > kLate;
  sweep_due_ = INT64_MAX;
  for (const auto& connection : all_connections()) {
    if (!connection->check_time(now, forgive)) {
      drop(connection);
      continue;
    }
    sweep_due_ = std::min(sweep_due_, connection->due(now));
    update_interest(*connection);
  }
}

void Server::pause_listeners(bool pause) {
  listeners_paused_ = pause;
  const std::scoped_lock lock(table_mutex_);
  for (std::size_t i = 0; i < listeners_.size(); ++i) {
    epoll_event event{pause ? 0U : static_cast<std::uint32_t>(EPOLLIN), {.u64 = listener_tag(i)}};
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listeners_[i].get(), &event);
  }
}

void Server::update_interest(Connection& connection) {
  const Interest interest = connection.interest();
  std::uint32_t events = 0;
  if (interest.read) events |= EPOLLIN;
  if (interest.write) events |= EPOLLOUT;
  epoll_event event{events, {.u64 = connection.id()}};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, connection.descriptor(), &event);
}

}  // namespace ofl
