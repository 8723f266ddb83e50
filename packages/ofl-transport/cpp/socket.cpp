#include "socket.hpp"

#include <algorithm>
#include <cerrno>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <arpa/inet.h>

namespace ofl {

namespace {

constexpr int kBacklog = 256;

UniqueFd new_socket(int family) noexcept {
  return UniqueFd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
}

// The share of the time that one of several addresses gets.
Nanoseconds share_of(Nanoseconds deadline, std::size_t left) noexcept {
  const Nanoseconds now = now_ns();
  return deadline <= now ? deadline : now + (deadline - now) / static_cast<Nanoseconds>(left);
}

Outcome finish_connect(int socket, const Address& address, Nanoseconds deadline, Attempt& attempt) {
  pollfd entry{socket, POLLOUT, 0};
  attempt.begin_stage();
  for (;;) {
    const timespec left = remaining(deadline, kSlice);
    const int ready = ::ppoll(&entry, 1, &left, nullptr);
    if (ready > 0) break;
    if (ready < 0 && errno == EINTR) attempt.signal_came();
    if (now_ns() >= deadline) return failure(OFL_DEADLINE, address.text() + " did not answer before the deadline");
    if (attempt.ends()) return attempt.interrupted();
  }
  int error = 0;
  socklen_t bytes = sizeof error;
  ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &bytes);
  if (error == 0) return {};
  if (error == ECONNREFUSED) return failure(OFL_REFUSED, "nobody listens on " + address.text());
  return failure(OFL_LOST, "cannot reach " + address.text() + ": " + errno_text(error));
}

Outcome connect_one(const Address& address, const Address* bind, Nanoseconds deadline, UniqueFd& socket,
                    Attempt& attempt) {
  UniqueFd fresh = new_socket(address.family());
  if (!fresh.valid()) return failure(OFL_SYSTEM, "cannot open a socket: " + errno_text(errno));
  if (bind != nullptr) {
    if (bind->family() != address.family())
      return failure(OFL_INVALID, "bind " + bind->text() + " and " + address.text() + " are of different families");
    // The kernel may share an ephemeral port among peers, so short calls do not exhaust the range.
    const int on = 1;
    ::setsockopt(fresh.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    if (::bind(fresh.get(), bind->get(), bind->bytes) != 0)
      return failure(OFL_INVALID, "cannot send from bind address " + bind->text() + ": " + errno_text(errno));
  }
  if (::connect(fresh.get(), address.get(), address.bytes) != 0) {
    if (errno == ECONNREFUSED) return failure(OFL_REFUSED, "nobody listens on " + address.text());
    if (errno == EADDRNOTAVAIL)
      return failure(OFL_LOST, "cannot reach " + address.text() +
                                   ": this host has no local port left for it (net.ipv4.ip_local_port_range), or no address");
    if (errno != EINPROGRESS) return failure(OFL_LOST, "cannot reach " + address.text() + ": " + errno_text(errno));
    Outcome outcome = finish_connect(fresh.get(), address, deadline, attempt);
    if (!outcome) return outcome;
  }
  // A connection to an ephemeral port of this host can meet itself when nobody listens there.
  if (local_address(fresh.get()).text() == peer_address(fresh.get()).text())
    return failure(OFL_REFUSED, "nobody listens on " + address.text());
  set_no_delay(fresh.get());
  socket = std::move(fresh);
  return {};
}

Outcome bind_failure(int error, const Address& address) {
  switch (error) {
    case EADDRINUSE:
      return failure(OFL_IN_USE, address.text() + " is in use: another socket listens there");
    case EADDRNOTAVAIL:
      return failure(OFL_INVALID, address.text() + " is not an address of this host");
    case EACCES:
      return failure(OFL_INVALID, address.text() + " needs privileges (a port below the unprivileged range)");
    default:
      return failure(OFL_SYSTEM, "cannot listen on " + address.text() + ": " + errno_text(error));
  }
}

}  // namespace

std::uint16_t Address::port() const noexcept {
  const auto port = family() == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port
                                         : reinterpret_cast<const sockaddr_in*>(&storage)->sin_port;
  return ntohs(port);
}

bool Address::wildcard() const noexcept {
  if (family() == AF_UNIX) return false;
  if (family() == AF_INET) return reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr.s_addr == htonl(INADDR_ANY);
  const in6_addr& address = reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&address) != 0)
    return std::all_of(address.s6_addr + 12, address.s6_addr + 16, [](std::uint8_t byte) { return byte == 0; });
  return IN6_IS_ADDR_UNSPECIFIED(&address) != 0;
}

std::string Address::text() const {
  if (family() == AF_UNIX) return "a process of this host";
  char host[INET6_ADDRSTRLEN] = "?";
  const bool six = family() == AF_INET6;
  const void* source = six ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr)
                           : static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr);
  ::inet_ntop(family(), source, host, sizeof host);
  std::string text = six ? "[" : "";
  text.append(host).append(six ? "]:" : ":").append(std::to_string(port()));
  return text;
}

Outcome connect_socket(const std::vector<Address>& addresses, const Address* bind, Nanoseconds deadline,
                       UniqueFd& socket, Attempt& attempt) {
  Outcome last = failure(OFL_INVALID, "the host has no address");
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    last = connect_one(addresses[i], bind, share_of(deadline, addresses.size() - i), socket, attempt);
    if (last || last.status == OFL_INTERRUPTED) return last;
  }
  return last;
}

Outcome listen_socket(const Address& address, bool allow_any, UniqueFd& socket, Address& bound) {
  if (address.wildcard() && !allow_any)
    return failure(OFL_INVALID, address.text() + " would listen on every interface; name one address of this host");
  UniqueFd fresh = new_socket(address.family());
  if (!fresh.valid()) return failure(OFL_SYSTEM, "cannot open a socket: " + errno_text(errno));
  const int on = 1;
  // A restarted server gets its port back although old connections are still in TIME_WAIT.
  ::setsockopt(fresh.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address.family() == AF_INET6) ::setsockopt(fresh.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  if (::bind(fresh.get(), address.get(), address.bytes) != 0) return bind_failure(errno, address);
  if (::listen(fresh.get(), kBacklog) != 0) return bind_failure(errno, address);
  bound = local_address(fresh.get());
  socket = std::move(fresh);
  return {};
}

Address local_address(int socket) noexcept {
  Address address;
  address.bytes = sizeof address.storage;
  ::getsockname(socket, address.get(), &address.bytes);
  return address;
}

Address peer_address(int socket) noexcept {
  Address address;
  address.bytes = sizeof address.storage;
  ::getpeername(socket, address.get(), &address.bytes);
  return address;
}

void set_no_delay(int socket) noexcept {
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

}  // namespace ofl
