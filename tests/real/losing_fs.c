// A FUSE file system over a folder, of which one sync fails and loses every write since the last good one.
//
//   losing_fs ROOT CONTROL MOUNT [fuse options]
//
// The sync that loses is the first one of the store after the file CONTROL appeared; it removes that file. Later syncs
// succeed, as on Linux, which reports a failed write-back once. Creations, removals and renames are not lost.
#define FUSE_USE_VERSION 31
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

// A write since the last good sync, with the bytes that it replaced.
struct undo { struct undo *next; char path[512]; off_t at; size_t count; char bytes[]; };

static char root[256];
static const char *control;
static struct undo *undos;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct name { char text[4096]; };
static struct name in_root(const char *path) {
  struct name name;
  snprintf(name.text, sizeof name.text, "%s%s", root, path);
  return name;
}
static int result(long outcome) { return outcome < 0 ? -errno : (int)outcome; }

// Ends the list of writes. The newest is undone first, so that the oldest bytes are left.
static void end_undos(int loses) {
  while (undos) {
    struct undo *last = undos;
    undos = last->next;
    int file = loses ? open(in_root(last->path).text, O_WRONLY) : -1;
    if (file >= 0) {
      if (pwrite(file, last->bytes, last->count, last->at) < 0) perror("undo");
      close(file);
    }
    free(last);
  }
}

static int fs_getattr(const char *path, struct stat *stat, struct fuse_file_info *file) {
  (void)file;
  return result(lstat(in_root(path).text, stat));
}
static int opened(int descriptor, struct fuse_file_info *file) {
  if (descriptor < 0) return -errno;
  file->fh = descriptor;
  file->direct_io = 1;
  return 0;
}
static int fs_open(const char *path, struct fuse_file_info *file) {
  return opened(open(in_root(path).text, file->flags & ~(O_DIRECT | O_APPEND)), file);
}
static int fs_create(const char *path, mode_t mode, struct fuse_file_info *file) {
  return opened(open(in_root(path).text, (file->flags & ~O_DIRECT) | O_CREAT, mode), file);
}
static int fs_read(const char *path, char *bytes, size_t count, off_t at, struct fuse_file_info *file) {
  (void)path;
  return result(pread(file->fh, bytes, count, at));
}
static int fs_write(const char *path, const char *bytes, size_t count, off_t at, struct fuse_file_info *file) {
  struct undo *undo = calloc(1, sizeof *undo + count);
  if (!undo) return -ENOMEM;
  snprintf(undo->path, sizeof undo->path, "%s", path);
  undo->at = at;
  undo->count = count;
  int reader = open(in_root(path).text, O_RDONLY);
  pthread_mutex_lock(&lock);
  if (pread(reader, undo->bytes, count, at) < 0) perror("pread");
  undo->next = undos;
  undos = undo;
  int written = result(pwrite(file->fh, bytes, count, at));
  pthread_mutex_unlock(&lock);
  close(reader);
  return written;
}
static int fs_fsync(const char *path, int data_only, struct fuse_file_info *file) {
  (void)data_only, (void)file;
  // A store is the file that was named, or in a folder the file larder.volume. Others, such as the figures, lose nothing.
  const char *ending = strrchr(path, '.');
  pthread_mutex_lock(&lock);
  int loses = (!ending || !strcmp(ending, ".volume")) && unlink(control) == 0;
  end_undos(loses);
  pthread_mutex_unlock(&lock);
  return loses ? -EIO : 0;
}
static int fs_release(const char *path, struct fuse_file_info *file) {
  (void)path;
  return result(close(file->fh));
}
static int fs_fallocate(const char *path, int mode, off_t at, off_t count, struct fuse_file_info *file) {
  (void)path;
  return result(fallocate(file->fh, mode, at, count));
}
static int fs_truncate(const char *path, off_t count, struct fuse_file_info *file) {
  return result(file ? ftruncate(file->fh, count) : truncate(in_root(path).text, count));
}
static int fs_unlink(const char *path) { return result(unlink(in_root(path).text)); }
static int fs_rename(const char *from, const char *to, unsigned flags) {
  (void)flags;
  return result(rename(in_root(from).text, in_root(to).text));
}
static int fs_mkdir(const char *path, mode_t mode) { return result(mkdir(in_root(path).text, mode)); }
static int fs_rmdir(const char *path) { return result(rmdir(in_root(path).text)); }
static int fs_readdir(const char *path, void *list, fuse_fill_dir_t fill, off_t at, struct fuse_file_info *file,
                      enum fuse_readdir_flags flags) {
  (void)at, (void)file, (void)flags;
  DIR *folder = opendir(in_root(path).text);
  if (!folder) return -errno;
  struct dirent *entry;
  while ((entry = readdir(folder)) && !fill(list, entry->d_name, 0, 0, 0)) {}
  closedir(folder);
  return 0;
}
static int fs_statfs(const char *path, struct statvfs *stat) { return result(statvfs(in_root(path).text, stat)); }
static int fs_chmod(const char *path, mode_t mode, struct fuse_file_info *file) {
  (void)file;
  return result(chmod(in_root(path).text, mode));
}

static const struct fuse_operations operations = {
    .getattr = fs_getattr, .open = fs_open, .create = fs_create, .read = fs_read, .write = fs_write,
    .fsync = fs_fsync, .release = fs_release, .fallocate = fs_fallocate, .truncate = fs_truncate,
    .unlink = fs_unlink, .rename = fs_rename, .mkdir = fs_mkdir, .rmdir = fs_rmdir, .readdir = fs_readdir,
    .statfs = fs_statfs, .chmod = fs_chmod};

int main(int count, char **arguments) {
  if (count < 4) return 2;
  snprintf(root, sizeof root, "%s", arguments[1]);
  control = arguments[2];
  arguments[2] = arguments[0];
  return fuse_main(count - 2, arguments + 2, &operations, 0);
}
