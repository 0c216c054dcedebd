#!/usr/bin/env bash
# A system that was just made, first with `larder service`, then with the Debian package: installed, started by systemd with the hardened
# unit, used, reloaded, restarted, installed again, removed and purged. Its disk has less room than the store's default size.
#
#   tests/real/package.sh [PACKAGE]        default: target/dist/*.deb (`cargo xtask dist` makes it)
#
# Needs root, a Debian mirror, debootstrap and systemd-container; boots the system with systemd-nspawn. SYSTEM=FOLDER keeps it for the next time.
. "$(dirname "$0")/stage.sh"

LARDER_BIN=/bin/true need debootstrap:debootstrap systemd-nspawn:systemd-container python3:python3
package=${1:-$(ls "$root"/target/dist/*.deb 2>/dev/null | head -1)}
[ -f "$package" ] || { echo "no package; make it with cargo xtask dist" >&2; exit 2; }
system=${SYSTEM:-$stage/system}
if [ ! -d "$system/usr" ]; then
  debootstrap --variant=minbase --include=ca-certificates,curl,adduser,logrotate,systemd,systemd-sysv,dbus \
    bookworm "$system" > "$stage/debootstrap.log" 2>&1 || { tail -3 "$stage/debootstrap.log" >&2; exit 2; }
fi

# The C client of the package, compiled here, with the package's program as its server.
dpkg-deb -x "$package" "$stage/unpacked"
client=$stage/unpacked/usr/share/larder/c
compiled() { "${CC:-cc}" -std=c99 -Wall -Wextra -o "$stage/larder-value" "$client"/larder-value.c "$client"/larder.c; }
shared() {
  "$stage/unpacked/usr/bin/larder" store serve "$stage/values" --size 64MiB --socket "$stage/socket" 2> "$stage/serve.log" &
  local server=$!
  for _ in $(seq 100); do grep -q '  socket ' "$stage/serve.log" && break; sleep 0.1; done
  "$stage/larder-value" "$stage/socket" put page < "$stage/page" && "$stage/larder-value" "$stage/socket" get page | cmp - "$stage/page"
  local outcome=$?
  kill "$server" && wait "$server" && return $outcome
}
documented() {
  local file
  ls "$stage"/unpacked/usr/share/man/man1/larder-store-serve.1* > /dev/null || return 1
  for file in doc/larder/how-to/values.md doc/larder/reference/store-socket.md doc/larder/copyright \
    doc/larder/LICENSE-MIT larder/c/larder.h; do
    [ -s "$stage/unpacked/usr/share/$file" ] || { echo "the package has no $file" >&2; return 1; }
  done
}

# What the system does when it is up, once; it shares this machine's network.
port=$(free_port)
(cd "$stage" && echo 'a page' > page && touch -d '30 days ago' page && exec python3 -m http.server "$port" --bind 127.0.0.1 > /dev/null 2>&1) &
pids+=($!)
rm -f "$system"/root/trial.* "$system"/root/upgraded "$system"/root/during
cp "$package" "$system/root/larder.deb"
mkdir -p "$system/opt/larder"
cp "$stage/unpacked/usr/bin/larder" "$system/opt/larder/"
cp "$stage/unpacked/usr/bin/larder" "$system/root/"
cat > "$system/root/trial.sh" <<TRIAL
page=http://127.0.0.1:$port/page
ask() { curl -s -o /dev/null -w '%{http_code} %header{cache-status}\n' -x http://127.0.0.1:3128 "\$page"; }
tell() { printf '%s: ' "\$1"; shift; "\$@" 2>&1 | tr '\n' ' '; echo; }
mount -t tmpfs -o size=2g none /var/cache
allow() { sed -i 's#^\[admin\]#[forward]\nallow_targets = ["127.0.0.0/8"]\n\n[admin]#' /etc/larder/larder.toml; }
larder=/opt/larder/larder
tell home-install /root/larder service install
tell own-install \$larder service install
tell own-again \$larder service install
allow
tell own-reload systemctl reload larder
tell own-user stat -c %U /proc/\$(systemctl show -p MainPID --value larder)
tell own-status \$larder service status
tell own-miss ask
sleep 1
tell own-hit ask
tell own-uninstall \$larder service uninstall
tell own-left ls /etc/systemd/system/larder.service
rm -r /etc/larder /var/cache/larder /var/lib/larder /var/log/larder
userdel larder
tell no-service \$larder service status
tell installed dpkg -i /root/larder.deb
tell smaller journalctl --unit larder --output cat --grep instead
tell over-package \$larder service install
allow
tell state systemctl is-active larder
tell user stat -c %U /proc/\$(systemctl show -p MainPID --value larder)
tell checked larder config check /etc/larder/larder.toml
tell reloaded systemctl reload larder
tell miss ask
sleep 1
tell hit ask
tell health curl -s http://127.0.0.1:3180/healthz
tell explained larder explain "\$page"
tell purged larder purge "\$page"
tell again ask
sleep 2
tell restarted systemctl restart larder
tell stays ask
main=\$(systemctl show -p MainPID --value larder)
while [ ! -e /root/upgraded ]; do ask >> /root/during; done &
tell upgraded dpkg -i /root/larder.deb
touch /root/upgraded
wait \$!
tell running systemctl is-active larder
[ "\$main" = "\$(systemctl show -p MainPID --value larder)" ] || tell replaced echo yes
tell during sh -c 'cut -d " " -f 1 /root/during | sort -u'
echo broken >> /etc/larder/larder.toml
tell wrong larder reload
tell alive ask
main=\$(systemctl show -p MainPID --value larder)
tell over-broken dpkg -i /root/larder.deb
[ "\$main" = "\$(systemctl show -p MainPID --value larder)" ] && tell stayed ask
tell removed dpkg -r larder
tell kept ls -d /var/cache/larder/store.larder /etc/larder/larder.toml
tell purged-package dpkg -P larder
tell left ls -d /var/cache/larder /etc/larder /var/log/larder /var/lib/larder
systemctl poweroff
TRIAL
cat > "$system/etc/systemd/system/trial.service" <<'UNIT'
[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/bin/bash /root/trial.sh
StandardOutput=file:/root/trial.log
StandardError=file:/root/trial.log
UNIT
mkdir -p "$system/etc/systemd/system/multi-user.target.wants"
ln -sf /etc/systemd/system/trial.service "$system/etc/systemd/system/multi-user.target.wants/trial.service"
timeout 180 systemd-nspawn -q --register=no --keep-unit -D "$system" -b > "$stage/boot.log" 2>&1
log=$system/root/trial.log
cat "$log"
says() { grep "^$1: " "$log" | grep -q "$2"; }

echo
verdict "the package has the C client's documents and licenses, and the manual page of its server" documented
verdict "the C client of the package compiles without a warning" compiled
verdict "it stores and gets a value" shared
verdict "a program in a home folder is not installed as a service, and the remedy is named" says home-install 'install -m 755 /root/larder'
verdict "larder service installs the program where it is" says own-install 'started, and starts with the machine'
verdict "a second time it changes nothing" says own-again 'exists, not changed'
verdict "that service has a user of its own" says own-user larder
verdict "its status names unit and process" says own-status 'active (running), starts with the machine.*process'
verdict "it serves from its cache" says own-hit 'Larder; hit'
verdict "it is uninstalled, and says what it keeps" says own-uninstall 'kept: the configuration'
verdict "its unit is gone" says own-left 'cannot access'
verdict "without a service, the status says how to get one" says no-service 'larder service install'
verdict "beside the package's service, it installs nothing" says over-package 'a package has installed the service'
verdict "the package's store takes what the disk has, and says so" says smaller 'instead of the default 10 GB'
verdict "it is installed, and runs as a user of its own" says user larder
verdict "the unit is up when systemd says so" says state '^state: active'
verdict "the configuration that is installed is right" says checked ok
verdict "it is reloaded without a complaint" grep -q '^reloaded: *$' "$log"
verdict "what is asked for twice is a hit" says hit 'Larder; hit'
verdict "it says that it is well" says health ok
verdict "root's commands find it" says explained 'from the cache'
verdict "what is purged is fetched again" says again 'fwd=uri-miss'
verdict "what is stored is there after a restart" says stays 'Larder; hit'
verdict "it runs after the package was installed again" says running active
verdict "the package's upgrade replaces the process" says replaced yes
verdict "every request during that is answered with 200" says during '^during: 200 *$'
verdict "a wrong file is refused with its line, and it goes on" says wrong 'larder.toml, line'
verdict "it answers all the same" says alive '^alive: 200'
verdict "an upgrade over the wrong file warns" says over-broken 'was not replaced'
verdict "the running proxy stays, and answers" says stayed '^stayed: 200'
verdict "removed, it leaves configuration and store" says kept store.larder
verdict "purged, it leaves nothing" grep -q "^left: ls: cannot access '/var/cache/larder'" "$log"
summary
