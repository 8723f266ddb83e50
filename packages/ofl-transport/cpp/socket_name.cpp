// Listening and connecting by a name on this host: abstract Unix sockets.  The name goes when its listener goes, and no
// file is left behind.  It belongs to the network namespace, so containers meet where they share one.

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include <poll.h>
#include <sys/un.h>

#include "socket.hpp"

namespace ofl {

namespace {

constexpr char kPrefix[] = "ofl/";  // after the NUL that makes it abstract
constexpr std::size_t kNameBytesMax = 64;
constexpr int kBacklog = 256;

socklen_t fill(const std::string& name, sockaddr_un& address) noexcept {
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, kPrefix, sizeof kPrefix - 1);
  std::memcpy(address.sun_path + sizeof kPrefix, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + sizeof kPrefix + name.size());
}

UniqueFd new_socket() noexcept { return UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)); }

Outcome bad_name(const std::string& name) {
  return failure(OFL_INVALID, "shm name '" + name + "' must have 1 to 64 of the characters A-Z a-z 0-9 . _ -");
}

// A full backlog does not block a non-blocking connect; it says EAGAIN, and nothing tells when there is room.
Outcome nap(const std::string& name, Nanoseconds deadline, const Attempt& attempt) {
  const timespec span = remaining(deadline, kMillisecond);
  if (::nanosleep(&span, nullptr) != 0 || attempt.abandoned()) return attempt.interrupted();
  if (now_ns() < deadline) return {};
  return failure(OFL_DEADLINE, "shm://" + name + " did not answer before the deadline");
}

// Whoever shares the network may take a name before its server does.  As servers judge their clients: a process of the same
// user, or root at either end.
Outcome judge_owner(const std::string& name, const UniqueFd& socket) {
  const uid_t user = ::geteuid();
  const uid_t owner = peer_credentials(socket.get()).uid;
  if (owner == user || owner == 0 || user == 0) return {};
  return failure(OFL_REFUSED, "shm://" + name + " is served by user " + std::to_string(owner) + ", and this process is of user " +
                                  std::to_string(user) + ": only root crosses users");
}

}  // namespace

bool valid_name(const std::string& name) noexcept {
  const auto good = [](char letter) {
    return (letter >= 'A' && letter <= 'Z') || (letter >= 'a' && letter <= 'z') || (letter >= '0' && letter <= '9') ||
           letter == '.' || letter == '_' || letter == '-';
  };
  return !name.empty() && name.size() <= kNameBytesMax && std::all_of(name.begin(), name.end(), good);
}

Outcome connect_name(const std::string& name, Nanoseconds deadline, UniqueFd& socket, const Attempt& attempt) {
  if (!valid_name(name)) return bad_name(name);
  sockaddr_un address{};
  const socklen_t bytes = fill(name, address);
  UniqueFd fresh = new_socket();
  if (!fresh.valid()) return failure(OFL_SYSTEM, "cannot open a socket: " + errno_text(errno));
  while (::connect(fresh.get(), reinterpret_cast<const sockaddr*>(&address), bytes) != 0) {
    if (errno == ECONNREFUSED) return failure(OFL_REFUSED, "nobody listens on shm://" + name);
    if (errno == EINTR) return attempt.interrupted();
    if (errno != EAGAIN) return failure(OFL_LOST, "cannot reach shm://" + name + ": " + errno_text(errno));
    Outcome outcome = nap(name, deadline, attempt);
    if (!outcome) return outcome;
  }
  Outcome outcome = judge_owner(name, fresh);
  if (outcome) socket = std::move(fresh);
  return outcome;
}

Outcome listen_name(const std::string& name, UniqueFd& socket) {
  if (!valid_name(name)) return bad_name(name);
  sockaddr_un address{};
  const socklen_t bytes = fill(name, address);
  UniqueFd fresh = new_socket();
  if (!fresh.valid()) return failure(OFL_SYSTEM, "cannot open a socket: " + errno_text(errno));
  if (::bind(fresh.get(), reinterpret_cast<const sockaddr*>(&address), bytes) != 0) {
    if (errno == EADDRINUSE) return failure(OFL_IN_USE, "shm://" + name + " is in use: another process listens there");
    return failure(OFL_SYSTEM, "cannot listen on shm://" + name + ": " + errno_text(errno));
  }
  if (::listen(fresh.get(), kBacklog) != 0)
    return failure(OFL_SYSTEM, "cannot listen on shm://" + name + ": " + errno_text(errno));
  socket = std::move(fresh);
  return {};
}

Credentials peer_credentials(int socket) noexcept {
  ucred found{};
  socklen_t bytes = sizeof found;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &found, &bytes) != 0) return {-1, static_cast<uid_t>(-1)};
  return {found.pid, found.uid};
}

}  // namespace ofl
