// Key files: what is taken, and that every refusal names the file, the rule and the repair.

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "check.hpp"
#include "key_file.hpp"
#include "socket.hpp"

using namespace ofl;

namespace {

constexpr uid_t kStranger = 65534;

// A folder of its own, gone with everything in it at the end.
class Folder {
 public:
  Folder() { CHECK(::mkdtemp(path_) != nullptr); }
  ~Folder() {
    for (const std::string& file : files_) ::unlink(file.c_str());
    ::rmdir(path_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string path() const { return path_; }
  std::string name(const std::string& file) {
    files_.push_back(std::string(path_) + "/" + file);
    return files_.back();
  }
  std::string file(const std::string& content, mode_t mode = 0600, const std::string& called = "key") {
    const std::string path = name(called);
    const UniqueFd out(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    CHECK(::write(out.get(), content.data(), content.size()) == static_cast<ssize_t>(content.size()));
    CHECK(::fchmod(out.get(), mode) == 0);
    return path;
  }

 private:
  char path_[32] = "/tmp/ofl-key-XXXXXX";
  std::vector<std::string> files_;
};

std::string text_of(const Key& key) { return {reinterpret_cast<const char*>(key.bytes().data()), key.bytes().size()}; }

std::string loaded(const std::string& path) {
  Key key;
  const Outcome outcome = load_key(path, key);
  if (!outcome) std::printf("%s\n", outcome.text.c_str());
  CHECK(outcome);
  return text_of(key);
}

// The refusal has every part, is one line, and leaves the key as it was.
bool refused(const std::string& path, std::initializer_list<std::string> parts, Status status = OFL_INVALID) {
  Key key(4);
  std::memcpy(key.room().data(), "old!", 4);
  key.keep(4);
  const Outcome outcome = load_key(path, key);
  bool good = outcome.status == status && text_of(key) == "old!" && outcome.text.find('\n') == std::string::npos;
  for (const std::string& part : parts) good = good && outcome.text.find(part) != std::string::npos;
  if (!good) std::printf("status %d: %s\n", static_cast<int>(outcome.status), outcome.text.c_str());
  return good;
}

}  // namespace

TEST(a_key_is_what_its_file_holds_less_one_newline) {
  Folder folder;
  const std::string hex(64, 'a');
  CHECK(loaded(folder.file(hex)) == hex);
  CHECK(loaded(folder.file(hex + "\n")) == hex);
  CHECK(loaded(folder.file(hex + "\n\n")) == hex + "\n");
  const std::string binary = std::string("\0\xFF\n", 3) + std::string(40, '\x80');
  CHECK(loaded(folder.file(binary)) == binary);
  CHECK(loaded(folder.file(hex, 0400)) == hex);
}

TEST(a_key_has_32_to_1024_bytes) {
  Folder folder;
  for (const std::string end : {"", "\n"}) {
    CHECK(loaded(folder.file(std::string(32, 'k') + end)).size() == 32);
    CHECK(loaded(folder.file(std::string(1024, 'k') + end)).size() == 1024);
    std::string path = folder.file(std::string(31, 'k') + end);
    CHECK(refused(path, {path, "holds 31 bytes", "at least 32", "'mv " + path, "'ofl keygen " + path + "'"}));
    path = folder.file(std::string(1025, 'k') + end);
    CHECK(refused(path, {path, "more than the 1024 bytes", "'ofl keygen " + path + "'"}));
  }
  CHECK(refused(folder.file(std::string(1024, 'k') + "\nk"), {"more than the 1024 bytes"}));
  CHECK(refused(folder.file(std::string(1024, 'k') + "\n\n"), {"more than the 1024 bytes"}));
  CHECK(refused(folder.file(""), {"holds 0 bytes"}));
  CHECK(refused(folder.file("\n"), {"holds 0 bytes"}));
  CHECK(refused(folder.file(std::string(1U << 20, 'k')), {"more than the 1024 bytes"}));
}

TEST(a_key_that_gives_any_right_to_others_is_refused) {
  Folder folder;
  for (const mode_t bit : {0040U, 0020U, 0010U, 0004U, 0002U, 0001U}) {
    const std::string path = folder.file(std::string(64, 'k'), 0600 | bit);
    char mode[16];
    std::snprintf(mode, sizeof mode, "%04o", 0600U | bit);
    CHECK(refused(path, {path, std::string("mode ") + mode, "'chmod 600 " + path + "'"}));
  }
}

TEST(a_key_of_a_third_user_is_refused) {
  if (::geteuid() != 0) SKIP("only root can give a file away");
  Folder folder;
  const std::string path = folder.file(std::string(64, 'k'));
  CHECK(::chown(path.c_str(), kStranger, static_cast<gid_t>(-1)) == 0);
  CHECK(refused(path, {path, "belongs to user 65534", "must belong to user 0", "'chown 0 " + path + "'"}));
}

TEST(a_key_that_this_user_may_not_open_is_refused) {
  if (::geteuid() != 0) SKIP("only root can become another user and come back");
  Folder folder;
  CHECK(::chmod(folder.path().c_str(), 0755) == 0);
  const std::string path = folder.file(std::string(64, 'k'));
  const std::string theirs = folder.file(std::string(64, 't'), 0600, "theirs");
  CHECK(::chown(theirs.c_str(), kStranger, static_cast<gid_t>(-1)) == 0);
  CHECK(::seteuid(kStranger) == 0);
  const bool closed = refused(path, {path, "user 65534", "'chown 65534 " + path + "'", "'namei -l " + path + "'"});
  const std::string own = loaded(theirs);
  CHECK(::seteuid(0) == 0);
  CHECK(closed);
  CHECK(own == std::string(64, 't'));
}

TEST(what_is_no_regular_file_is_refused_and_never_waited_for) {
  Folder folder;
  CHECK(refused(folder.path(), {folder.path(), "not a regular file", "'ofl keygen FILE'"}));
  const std::string pipe = folder.name("pipe");
  CHECK(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(refused(pipe, {pipe, "not a regular file"}));
  CHECK(refused("/dev/zero", {"/dev/zero", "not a regular file"}));
  const std::string path = folder.name("socket");
  const UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  CHECK(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  CHECK(refused(path, {path, "not a regular file"}));
}

TEST(a_link_is_refused_wherever_it_points) {
  Folder folder;
  const std::string path = folder.file(std::string(64, 'k'));
  const std::string link = folder.name("link");
  CHECK(::symlink(path.c_str(), link.c_str()) == 0);
  CHECK(refused(link, {link, "symbolic link", "'readlink -f " + link + "'"}));
  CHECK(::unlink(path.c_str()) == 0);
  CHECK(refused(link, {link, "symbolic link"}));
}

TEST(a_missing_key_says_how_to_make_one) {
  Folder folder;
  const std::string path = folder.name("absent");
  CHECK(refused(path, {path, "does not exist", "'ofl keygen " + path + "'"}));
  CHECK(refused("", {"path of the key file is empty"}));
  CHECK(refused(path + std::string("\0x", 2), {"NUL"}));
  CHECK(refused(folder.file(std::string(64, 'k')) + "/below", {"cannot be opened: Not a directory"}, OFL_SYSTEM));
}

TEST(the_repair_is_a_command_whatever_the_name) {
  Folder folder;
  const std::string path = folder.file(std::string(64, 'k'), 0644, "it's mine");
  CHECK(refused(path, {"'chmod 600 '" + folder.path() + "/it'\"'\"'s mine''"}));
  CHECK(refused("-absent", {"'ofl keygen ./-absent'"}));
}
