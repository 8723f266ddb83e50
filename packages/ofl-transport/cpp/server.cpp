#include "server.hpp"

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "process.hpp"
#include "server_tags.hpp"

namespace ofl {

namespace {

constexpr Nanoseconds kNever = INT64_MAX;

// Does it at the end of the scope, however that ends.
template <typename Function>
class Finally {
 public:
  explicit Finally(Function function) noexcept : function_(std::move(function)) {}
  ~Finally() { function_(); }
  Finally(const Finally&) = delete;
  Finally& operator=(const Finally&) = delete;

 private:
  const Function function_;
};

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
  if (options.spin < 0) return failure(OFL_INVALID, "spin_ns must not be negative");
  return {};
}

}  // namespace

Outcome Server::create(const ServerOptions& options, std::unique_ptr<Server>& server) {
  Outcome outcome = check_options(options);
  AllowList allowed;
  if (outcome) outcome = AllowList::parse(options.allowed, allowed);
  std::optional<Key> key;
  if (outcome && options.key_file) outcome = load_key(*options.key_file, key.emplace());
  if (outcome && key) outcome = hmac_available();
  if (!outcome) return outcome;
  server.reset(new Server(options));
  server->shared_.allowed = std::move(allowed);
  server->shared_.key = std::move(key);
  return {};
}

Server::Server(const ServerOptions& options)
    : fork_generation_(fork_generation()),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      sweep_due_(kNever),
      spare_(::open("/dev/null", O_RDONLY | O_CLOEXEC)) {
  if (!epoll_.valid() || !wake_.valid()) throw std::system_error(errno, std::generic_category(), "epoll");
  shared_.options = options;
  if (usable_cpus() < 2) shared_.options.spin = 0;  // the peer could not run while we look
  shared_.boot_nonce = random_nonce();
  epoll_event event{EPOLLIN, {.u64 = kWakeTag}};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event);
  keeper_ = start_quiet_thread([this] { keep(); });
}

Server::~Server() { close(); }

bool Server::foreign() const noexcept { return fork_generation_ != fork_generation(); }

Outcome Server::listen(wire::Transport transport, const std::string& host, std::uint16_t port,
                       std::uint16_t& bound_port) {
  const Gate::Pass pass(gate_);
  if (!pass) return failure(OFL_CLOSED, "the server is closed");
  Listener listener;
  listener.transport = transport;
  if (transport == wire::Transport::shm) listener.name = host;
  Outcome outcome;
  if (transport == wire::Transport::shm) {
    outcome = listen_name(host, listener.socket);
  } else {
    std::vector<Address> addresses;
    outcome = resolve(host, port, now_ns() + 5 * kSecond, addresses);
    if (outcome && transport == wire::Transport::rdma) {
      listener.address = addresses.front();
      outcome = check_rdma_address(listener.address, listener.registrar);
    }
    Address bound;
    if (outcome) outcome = listen_socket(addresses.front(), shared_.options.allow_any, listener.socket, bound);
    bound_port = outcome ? bound.port() : std::uint16_t{0};
  }
  if (!outcome) return outcome;
  const std::scoped_lock lock(table_mutex_);
  epoll_event event{EPOLLIN, {.u64 = listener_tag(listeners_.size())}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, listener.socket.get(), &event) != 0)
    return failure(OFL_SYSTEM, "cannot watch the listener on " + host + ": " + errno_text(errno));
  listeners_.push_back(std::move(listener));
  return {};
}

// Asked anew each time: a device that failed and came back is another one to connections that are made since.  One that
// cannot be found now is tried as it was known, and says itself what is wrong with it.
std::vector<Registrar*> Server::registrars() {
  std::vector<Registrar*> all{&host_registrar()};
  std::vector<Listener*> listeners;  // references into it stay valid
  {
    const std::scoped_lock lock(table_mutex_);
    for (Listener& listener : listeners_)
      if (listener.registrar != nullptr) listeners.push_back(&listener);
  }
  for (Listener* listener : listeners) {
    Registrar* now = nullptr;
    const bool found(check_rdma_address(listener->address, now));
    const std::scoped_lock lock(table_mutex_);
    if (found) listener->registrar = now;
    all.push_back(listener->registrar);
  }
  return all;
}

Outcome Server::register_memory(Memory& memory) {
  const Gate::Pass pass(gate_);
  if (!pass) return failure(OFL_CLOSED, "the server is closed");
  for (Registrar* registrar : registrars()) {
    Outcome outcome = memory.register_with(*registrar);
    if (!outcome) return outcome;
  }
  return {};
}

Status Server::next(Nanoseconds deadline, ofl_event& event) {
  const Gate::Pass pass(gate_);
  if (!pass) return OFL_CLOSED;
  if (consuming_.exchange(true, std::memory_order_acquire)) return OFL_BUSY;
  // Whatever is thrown on the way, the next caller finds nobody here.
  const Finally leave([this]() noexcept { consuming_.store(false, std::memory_order_release); });
  if (take_wake()) return OFL_WOKEN;  // before what is in the queue, or who is always asked for more would never hear of it
  if (take_event(event)) return OFL_OK;
  lead_as_consumer();
  const Finally step_down([this]() noexcept { stop_leading(); });
  try {
    return lead_until(deadline, event);
  } catch (...) {
    if (take_direct(event)) return OFL_OK;  // it came in the same turn, and nobody else looks for it
    throw;
  }
}

Status Server::lead_until(Nanoseconds deadline, ofl_event& event) {
  // One look, one turn, one look: whoever calls repeats it, so that signal handlers run in between.
  for (bool turned = false;; turned = true) {
    if (take_direct(event) || take_event(event)) return OFL_OK;
    if (take_wake()) return OFL_WOKEN;
    if (stopping_.load(std::memory_order_acquire)) return OFL_CLOSED;
    const Nanoseconds now = now_ = now_ns();
    if (turned) return now >= deadline ? OFL_DEADLINE : OFL_INTERRUPTED;
    shared_.direct_state = ServerShared::Direct::empty;
    const Nanoseconds spin = std::exchange(eager_, false) ? shared_.options.spin : 0;
    turn(std::min(deadline, now + kSlice), std::min(deadline, now + spin));
  }
}

bool Server::take_wake() noexcept {
  return woken_.load(std::memory_order_relaxed) && woken_.exchange(false, std::memory_order_relaxed);
}

// What came past the queue is older than what is in it.
bool Server::take_direct(ofl_event& out) {
  const bool full = shared_.direct_state == ServerShared::Direct::full;
  shared_.direct_state = ServerShared::Direct::off;
  if (!full || !shared_.direct_from->holds(shared_.direct.sequence)) return false;
  hand_out(shared_.direct, out);
  return true;
}

bool Server::take_event(ofl_event& out) {
  if (shared_.events.size() == 0) return false;
  Event event;
  while (shared_.events.pop(event)) {
    if (event.kind != OFL_EVENT_REQUEST || take_request(event)) {
      hand_out(event, out);
      return true;
    }
  }
  return false;
}

// False: the request does not matter any more, since it was cancelled or its connection is gone.
bool Server::take_request(Event& event) {
  bool resumed = false;
  const auto from = std::move(event.from);
  const bool wanted = from->take_request(event.sequence, event.body.bytes, resumed);
  if (resumed) update_interest(*from);
  return wanted;
}

void Server::hand_out(Event& event, ofl_event& out) {
  if (event.kind == OFL_EVENT_REQUEST) eager_ = true;
  out.kind = event.kind;
  out.version = event.version;
  out.connection = event.connection;
  out.sequence = event.sequence;
  out.received_ns = event.received;
  out.body = event.body.memory.get();
  out.body_bytes = event.body.bytes;
  out.capacity = 0;
  out.reply_bytes_max = event.reply_bytes_max;
  copy_text(event.text, out.text, sizeof out.text);
  if (event.body.bytes > Body::kLentMax) {
    out.capacity = event.body.capacity;
    static_cast<void>(event.body.memory.release());
  } else {
    std::swap(lent_, event.body);  // the next small request lands in what comes back
  }
}

Status Server::reply(std::uint64_t connection, std::uint64_t sequence, std::span<const Part> parts, Memory* lent) {
  const Gate::Pass pass(gate_);
  if (!pass) return OFL_CLOSED;
  Recent<Connection>::Use use(answered_);
  if (Connection* recent = use.find(connection)) return reply_by(*recent, sequence, parts, lent);
  std::shared_ptr<Connection> found;
  {
    const std::scoped_lock lock(table_mutex_);  // `drop` takes it out of the table first, and then forgets it
    const auto entry = connections_.find(connection);
    if (entry != connections_.end()) found = entry->second;
    if (found && use) use.keep(connection, found);
  }
  if (found) return reply_by(*found, sequence, parts, lent);
  shared_.counters.add(Counter::replies_dropped);
  return OFL_UNKNOWN;
}

Status Server::reply_by(Connection& connection, std::uint64_t sequence, std::span<const Part> parts, Memory* lent) {
  const Status status = connection.reply(sequence, parts, lent);
  if (status == OFL_UNKNOWN) shared_.counters.add(Counter::replies_dropped);
  if (status == OFL_OK && connection.interest().write) {
    update_interest(connection);
    call_keeper();
  }
  return status;
}

Status Server::idle(Memory& memory, Nanoseconds deadline) {
  const Gate::Pass pass(gate_);
  if (!pass) return OFL_CLOSED;
  const Nanoseconds returns = now_ns() + kSlice;  // whoever calls repeats it, so that signal handlers run in between
  for (;;) {
    if (memory.idle()) return OFL_OK;
    for (const auto& connection : all_connections()) connection->reap();
    if (memory.idle()) return OFL_OK;
    const Nanoseconds now = now_ns();
    if (now >= deadline) return OFL_DEADLINE;
    if (now >= returns) return OFL_INTERRUPTED;
    memory.wait_idle(std::min(deadline, now + kMillisecond));  // the leader may reap them first
  }
}

Status Server::disconnect(std::uint64_t connection, const std::string& reason) {
  const Gate::Pass pass(gate_);
  if (!pass) return OFL_CLOSED;
  const auto found = find(connection);
  if (!found || !found->disconnect(reason)) return OFL_UNKNOWN;
  update_interest(*found);
  return OFL_OK;
}

void Server::wake() {
  const Gate::Pass pass(gate_);
  if (!pass) return;
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

}  // namespace ofl
