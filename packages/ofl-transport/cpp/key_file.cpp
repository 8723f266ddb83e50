#include "key_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "socket.hpp"

namespace ofl {

namespace {

// The path as a word of a shell command.
std::string quoted(const std::string& path) {
  constexpr char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./_-";
  const std::string word = path.front() == '-' ? "./" + path : path;  // a command would take it for an option
  if (word.find_first_not_of(plain) == std::string::npos) return word;
  std::string text = "'";
  for (const char letter : word) {
    if (letter == '\'')
      text += "'\"'\"'";
    else
      text += letter;
  }
  return text + "'";
}

Outcome refused(const std::string& path, const std::string& rule, const std::string& repair) {
  return failure(OFL_INVALID, "key file " + path + " " + rule + ": " + repair);
}

Outcome not_a_file(const std::string& path) {
  return refused(path, "is not a regular file", "name one, or make one with 'ofl keygen FILE'");
}

Outcome not_opened(const std::string& path, int error) {
  const std::string word = quoted(path);
  switch (error) {
    case ENOENT:
      return refused(path, "does not exist", "'ofl keygen " + word + "' makes one, or copy the one that the peer has");
    case ELOOP:
      return refused(path, "is a symbolic link, which may come to mean another file",
                     "name the file itself, which 'readlink -f " + word + "' shows");
    case EACCES:
      return refused(path, "cannot be opened by user " + std::to_string(::geteuid()),
                     "'chown " + std::to_string(::geteuid()) + " " + word +
                         "' as root gives it to that user, and 'namei -l " + word + "' shows a closed folder above it");
    case ENXIO:  // a socket
      return not_a_file(path);
    default:
      return failure(OFL_SYSTEM, "key file " + path + " cannot be opened: " + errno_text(error));
  }
}

Outcome judge_file(const std::string& path, const struct stat& facts) {
  if (!S_ISREG(facts.st_mode)) return not_a_file(path);
  const uid_t user = ::geteuid();
  if (facts.st_uid != user && facts.st_uid != 0) {
    const std::string allowed = user == 0 ? "user 0" : "user " + std::to_string(user) + " or to root";
    return refused(path, "belongs to user " + std::to_string(facts.st_uid) + " and must belong to " + allowed,
                   "'chown " + std::to_string(user) + " " + quoted(path) + "' as root");
  }
  // An access list that lets anybody else in shows in the bits of the group.
  if ((facts.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    char mode[16];
    std::snprintf(mode, sizeof mode, "%04o", static_cast<unsigned>(facts.st_mode) & 07777U);
    return refused(path, std::string("has mode ") + mode + ", which gives rights to other users",
                   "'chmod 600 " + quoted(path) + "'");
  }
  return {};
}

Outcome read_all(const std::string& path, int file, Key& key) {
  std::size_t bytes = 0;
  const std::span<std::uint8_t> room = key.room();
  while (bytes < room.size()) {
    const ssize_t got = ::read(file, room.data() + bytes, room.size() - bytes);
    if (got == 0) break;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failure(OFL_SYSTEM, "key file " + path + " cannot be read: " + errno_text(errno));
    bytes += static_cast<std::size_t>(got);
  }
  if (bytes > 0 && room[bytes - 1] == '\n') --bytes;
  key.keep(bytes);
  return {};
}

Outcome judge_size(const std::string& path, std::size_t bytes) {
  const std::string word = quoted(path);
  const std::string repair = "'mv " + word + " " + quoted(path + ".old") + "', then 'ofl keygen " + word + "'";
  if (bytes > kKeyBytesMax) return refused(path, "holds more than the 1024 bytes that a key may have", repair);
  if (bytes < kKeyBytesMin)
    return refused(path, "holds " + std::to_string(bytes) + " bytes, and a key has at least 32", repair);
  return {};
}

}  // namespace

Key& Key::operator=(Key&& other) noexcept {
  if (this == &other) return *this;
  wipe();
  memory_ = std::move(other.memory_);
  capacity_ = std::exchange(other.capacity_, 0);
  size_ = std::exchange(other.size_, 0);
  return *this;
}

void Key::wipe() noexcept {
  if (memory_ != nullptr) ::explicit_bzero(memory_.get(), capacity_);
}

Outcome load_key(const std::string& path, Key& key) {
  if (path.empty()) return failure(OFL_INVALID, "the path of the key file is empty");
  if (path.find('\0') != std::string::npos) return failure(OFL_INVALID, "the path of the key file has a NUL character");
  // Without O_NONBLOCK a pipe without a writer would keep us here.
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file.valid()) return not_opened(path, errno);
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0) return not_opened(path, errno);
  Outcome outcome = judge_file(path, facts);
  if (!outcome) return outcome;
  Key fresh(kKeyBytesMax + 2);  // a newline, and one byte that shows that there is more
  outcome = read_all(path, file.get(), fresh);
  if (outcome) outcome = judge_size(path, fresh.bytes().size());
  if (outcome) key = std::move(fresh);
  return outcome;
}

}  // namespace ofl
