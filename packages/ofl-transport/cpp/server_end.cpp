// How a server ends: its clients hear why and go first, then its threads, then what it holds.

#include <algorithm>
#include <chrono>
#include <vector>

#include "server.hpp"

namespace ofl {

namespace {

constexpr std::chrono::seconds kFarewell{1};  // for clients to take what was sent to them and hang up
constexpr char kClosing[] = "the server is closing";

}  // namespace

void Server::close() {
  if (!gate_.close()) return;
  say_farewell();
  {
    const std::scoped_lock lock(leader_mutex_);
    stopping_ = true;
  }
  leader_changed_.notify_all();
  kick();
  gate_.wait_empty();
  keeper_.join();
  for (const auto& [id, connection] : connections_) connection->hang_up(kClosing);  // nobody else is here any more
  abandon();
}

// Whoever is connected hears why it ends behind all that was sent before, and hangs up first: a socket that is closed
// while something lies in it unread takes back what its peer has not read either.
void Server::say_farewell() noexcept {
  try {
    wait_for_goodbyes();
  } catch (...) {  // a courtesy; the end of the connection says the same
  }
}

void Server::wait_for_goodbyes() {
  std::vector<std::uint64_t> leaving;
  for (const auto& connection : all_connections()) {
    if (!connection->disconnect(kClosing)) continue;
    update_interest(*connection);
    leaving.push_back(connection->id());
  }
  if (leaving.empty()) return;
  call_keeper();
  std::unique_lock lock(table_mutex_);
  dropped_.wait_for(lock, kFarewell, [&] {
    return std::none_of(leaving.begin(), leaving.end(), [&](std::uint64_t id) { return connections_.contains(id); });
  });
}

void Server::abandon() noexcept {
  cheap_.clear();
  hot_.reset();
  answered_.clear();
  connections_.clear();
  listeners_.clear();
  spare_.reset();
  epoll_.reset();
  wake_.reset();
}

}  // namespace ofl
