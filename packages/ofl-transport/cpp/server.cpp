#include "server.hpp"

#include <algorithm>
#include <cerrno>
#include <system_error>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "process.hpp"
#include "server_tags.hpp"

namespace ofl {

namespace {

constexpr Nanoseconds kNever = INT64_MAX;

Outcome check_options(const ServerOptions& options) {
  if (options.service.empty() || options.service.size() > wire::kServiceBytes ||
      wire::printable(options.service) != options.service)
    return failure(OFL_INVALID, "service must have 1 to 64 printable ASCII characters");
  if (options.version_min > options.version_max) return failure(OFL_INVALID, "version_min must not be above version_max");
  if (options.frame_bytes_max < wire::kFrameBytesMin || options.frame_bytes_max > wire::kFrameBytesMax)
    return failure(OFL_INVALID, "max_frame_bytes must be from 1024 to 2**30");
  if (options.connections_max == 0) return failure(OFL_INVALID, "max_connections must be positive");
  if (options.pending_max == 0) return failure(OFL_INVALID, "max_pending must be positive");
  if (options.calls_max == 0 || options.calls_max > wire::kSlots)
    return failure(OFL_INVALID, "max_calls must be from 1 to 256");
  if (options.handshake <= 0) return failure(OFL_INVALID, "handshake_ns must be positive");
  if (options.frame <= 0) return failure(OFL_INVALID, "frame_ns must be positive");
  return {};
}

}  // namespace

// A caller inside the server; `close` waits until all have left.
class Server::Use {
 public:
  explicit Use(Server& server) noexcept : server_(server) {
    const std::scoped_lock lock(server.state_mutex_);
    inside_ = !server.closed_;
    if (inside_) ++server.users_;
  }
  ~Use() {
    if (!inside_) return;
    const std::scoped_lock lock(server_.state_mutex_);
    if (--server_.users_ == 0 && server_.closed_) server_.state_changed_.notify_all();
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  explicit operator bool() const noexcept { return inside_; }

 private:
  Server& server_;
  bool inside_ = false;
};

Outcome Server::create(const ServerOptions& options, std::unique_ptr<Server>& server) {
  Outcome outcome = check_options(options);
  if (outcome) server.reset(new Server(options));
  return outcome;
}

Server::Server(const ServerOptions& options)
    : fork_generation_(fork_generation()),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      sweep_due_(kNever),
      spare_(::open("/dev/null", O_RDONLY | O_CLOEXEC)) {
  if (!epoll_.valid() || !wake_.valid()) throw std::system_error(errno, std::generic_category(), "epoll");
  shared_.options = options;
  shared_.boot_nonce = random_nonce();
  epoll_event event{EPOLLIN, {.u64 = kWakeTag}};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event);
  keeper_ = start_quiet_thread([this] { keep(); });
}

Server::~Server() { close(); }

bool Server::foreign() const noexcept { return fork_generation_ != fork_generation(); }

Outcome Server::listen(const std::string& host, std::uint16_t port, std::uint16_t& bound_port) {
  const Use use(*this);
  if (!use) return failure(OFL_CLOSED, "the server is closed");
  std::vector<Address> addresses;
  Outcome outcome = resolve(host, port, now_ns() + 5 * kSecond, addresses);
  if (!outcome) return outcome;
  UniqueFd socket;
  Address bound;
  outcome = listen_socket(addresses.front(), shared_.options.allow_any, socket, bound);
  if (!outcome) return outcome;
  bound_port = bound.port();
  const std::scoped_lock lock(table_mutex_);
  epoll_event event{EPOLLIN, {.u64 = listener_tag(listeners_.size())}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket.get(), &event) != 0)
    return failure(OFL_SYSTEM, "cannot watch " + bound.text() + ": " + errno_text(errno));
  listeners_.push_back(std::move(socket));
  return {};
}

Status Server::next(Nanoseconds deadline, ofl_event& event) {
  const Use use(*this);
  if (!use) return OFL_CLOSED;
  if (consuming_.exchange(true, std::memory_order_acquire)) return OFL_BUSY;
  Status status = OFL_OK;
  if (!take_event(event)) {
    lead_as_consumer();
    status = lead_until(deadline, event);
    stop_leading();
  }
  consuming_.store(false, std::memory_order_release);
  return status;
}

Status Server::lead_until(Nanoseconds deadline, ofl_event& event) {
  // One look, one turn, one look: whoever calls repeats it, so that signal handlers run in between.
  for (bool turned = false;; turned = true) {
    if (take_event(event)) return OFL_OK;
    if (woken_.exchange(false, std::memory_order_relaxed)) return OFL_WOKEN;
    {
      const std::scoped_lock lock(leader_mutex_);
      if (stopping_) return OFL_CLOSED;
    }
    if (turned) return now_ns() >= deadline ? OFL_DEADLINE : OFL_INTERRUPTED;
    turn(std::min(deadline, now_ns() + kSlice));
  }
}

// The next event that still matters: requests that were cancelled or whose connection is gone are skipped.
bool Server::take_event(ofl_event& out) {
  Event event;
  while (shared_.events.pop(event)) {
    if (event.kind == OFL_EVENT_REQUEST) {
      const auto connection = find(event.connection);
      if (!connection) continue;
      const Interest before = connection->interest();
      const bool wanted = connection->take_request(event.sequence, event.body.bytes);
      if (connection->interest() != before) update_interest(*connection);
      if (!wanted) continue;
    }
    out = {};
    out.kind = event.kind;
    out.version = event.version;
    out.connection = event.connection;
    out.sequence = event.sequence;
    out.received_ns = event.received;
    out.body = event.body.memory.get();
    out.body_bytes = event.body.bytes;
    copy_text(event.text, out.text, sizeof out.text);
    if (event.body.bytes > Body::kLentMax) {
      out.capacity = event.body.capacity;
      static_cast<void>(event.body.memory.release());
    } else {
      lent_ = std::move(event.body);
    }
    return true;
  }
  return false;
}

Status Server::reply(std::uint64_t connection, std::uint64_t sequence, std::span<const Part> parts) {
  const Use use(*this);
  if (!use) return OFL_CLOSED;
  const auto found = find(connection);
  const Status status = found ? found->reply(sequence, parts) : OFL_UNKNOWN;
  if (status == OFL_UNKNOWN) shared_.counters.add(Counter::replies_dropped);
  if (status == OFL_OK && found->interest().write) {
    update_interest(*found);
    call_keeper();
  }
  return status;
}

Status Server::disconnect(std::uint64_t connection, const std::string& reason) {
  const Use use(*this);
  if (!use) return OFL_CLOSED;
  const auto found = find(connection);
  if (!found || !found->disconnect(reason)) return OFL_UNKNOWN;
  update_interest(*found);
  return OFL_OK;
}

void Server::wake() {
  const Use use(*this);
  if (!use) return;
  woken_.store(true, std::memory_order_relaxed);
  kick();
}

void Server::kick() noexcept {
  const std::uint64_t one = 1;
  static_cast<void>(!::write(wake_.get(), &one, sizeof one));
}

std::shared_ptr<Connection> Server::find(std::uint64_t id) {
  const std::scoped_lock lock(table_mutex_);
  const auto entry = connections_.find(id);
  return entry == connections_.end() ? nullptr : entry->second;
}

std::vector<std::shared_ptr<Connection>> Server::all_connections() {
  const std::scoped_lock lock(table_mutex_);
  std::vector<std::shared_ptr<Connection>> all;
  all.reserve(connections_.size());
  for (const auto& [id, connection] : connections_) all.push_back(connection);
  return all;
}

void Server::close() {
  {
    const std::scoped_lock lock(state_mutex_);
    if (closed_) return;
    closed_ = true;
  }
  {
    const std::scoped_lock lock(leader_mutex_);
    stopping_ = true;
  }
  leader_changed_.notify_all();
  kick();
  {
    std::unique_lock lock(state_mutex_);
    state_changed_.wait(lock, [&] { return users_ == 0; });
  }
  keeper_.join();
  for (const auto& connection : all_connections()) connection->hang_up("the server is closing");
  abandon();
}

void Server::abandon() noexcept {
  connections_.clear();
  listeners_.clear();
  spare_.reset();
  epoll_.reset();
  wake_.reset();
}

}  // namespace ofl
