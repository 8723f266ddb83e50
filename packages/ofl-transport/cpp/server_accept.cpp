// Who gets in: connections are accepted, turned away, and give way to others.

#include <cerrno>

#include <fcntl.h>
#include <sys/epoll.h>

#include "server.hpp"
#include "server_tags.hpp"
#include "socket_channel.hpp"

namespace ofl {

namespace {

constexpr int kAcceptsPerTurn = 64;

}  // namespace

void Server::accept_from(const Listener& listener) {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    if (shared_.events.size() >= kEventsMax) {
      pause_listeners(true);
      return;
    }
    UniqueFd socket(::accept4(listener.socket.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.valid()) {
      adopt(std::move(socket), listener);
    } else if (errno == EMFILE || errno == ENFILE) {
      shed_one(listener.socket);
    } else if (errno != EINTR && errno != ECONNABORTED) {
      return;
    }
  }
}

// Before a byte of the peer is read.
bool Server::welcome(const UniqueFd& socket, const Listener& listener, const Address& peer) {
  if (listener.transport == wire::Transport::shm) {
    const uid_t uid = peer_credentials(socket.get()).uid;
    if (uid == ::geteuid() || uid == 0) return true;
    shared_.counters.add(Counter::not_allowed);
    return false;
  }
  if (!shared_.allowed.allows(peer)) {
    shared_.counters.add(Counter::not_allowed);
    return false;
  }
  if (shared_.failures.refused_for(peer, now_ns()) == 0) return true;
  shared_.counters.add(Counter::auth_limited);
  return false;
}

// Descriptors have run out: a waiting connection would wake the loop for ever, so it is taken and closed.
void Server::shed_one(const UniqueFd& listener) {
  spare_.reset();
  UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  spare_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  shared_.counters.add(Counter::evicted);
}

void Server::adopt(UniqueFd socket, const Listener& listener) {
  const int fd = socket.get();
  const Address address = peer_address(fd);
  if (!welcome(socket, listener, address)) return;
  if (listener.transport != wire::Transport::shm) set_no_delay(fd);
  std::shared_ptr<Connection> connection;
  try {
    connection = add(std::move(socket), listener, address);
  } catch (...) {  // closed by now; those that are here go on
    shared_.counters.add(Counter::evicted);
    return;
  }
  epoll_event event{EPOLLIN, {.u64 = connection->id()}};
  const bool watched = ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
  if (!watched) shared_.counters.add(Counter::evicted);
  // A client's connect frame is usually here already: one turn less for it.
  if (!watched || !connection->on_readable()) {
    drop(connection);
  } else {
    note_due(*connection);
  }
}

std::shared_ptr<Connection> Server::add(UniqueFd socket, const Listener& listener, const Address& address) {
  const int fd = socket.get();
  const bool shared_memory = listener.transport == wire::Transport::shm;
  const Nanoseconds now = now_ns();
  const std::uint64_t id = next_id_++;
  std::string peer = shared_memory ? "shm://" + listener.name + " process " + std::to_string(peer_credentials(fd).pid)
                                   : address.text();
  auto channel = std::make_unique<SocketChannel>(std::move(socket));
  auto connection = std::make_shared<Connection>(shared_, id, std::move(channel), listener.transport, address,
                                                 std::move(peer), now);
  evict_oldest();
  {
    const std::scoped_lock lock(table_mutex_);
    connections_.emplace(id, connection);
  }
  return connection;
}

// A flood of silent connections must not keep others out: the oldest that has not negotiated gives way.  Who was open and is
// being drained may still be taking what was sent to it, and gives way only where more are than may be open.
void Server::evict_oldest() {
  struct Waiting {
    std::shared_ptr<Connection> oldest;
    std::size_t count = 0;
  };
  Waiting negotiating;
  Waiting leaving;
  for (const auto& connection : all_connections()) {
    if (!connection->unopened()) continue;
    Waiting& kind = connection->was_open() ? leaving : negotiating;
    ++kind.count;
    if (!kind.oldest || connection->id() < kind.oldest->id()) kind.oldest = connection;
  }
  if (negotiating.count >= shared_.options.pending_max) evict(negotiating.oldest);
  if (leaving.count > shared_.options.connections_max) evict(leaving.oldest);
}

void Server::evict(const std::shared_ptr<Connection>& connection) {
  shared_.counters.add(Counter::evicted);
  drop(connection);
}

void Server::pause_listeners(bool pause) {
  listeners_paused_ = pause;
  const std::scoped_lock lock(table_mutex_);
  for (std::size_t i = 0; i < listeners_.size(); ++i) {
    epoll_event event{pause ? 0U : static_cast<std::uint32_t>(EPOLLIN), {.u64 = listener_tag(i)}};
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listeners_[i].socket.get(), &event);
  }
}

}  // namespace ofl
