# prof.sh subject seq steps : self time by symbol, of the main thread
perf record -e cpu-clock -F 15000 -g --delay ${4:-9000} -o /tmp/w/cost/$1.data -- python -m cann_sim run -- python /tmp/w/cost/floor.py $1 $2 $3 2>&1 | grep median
perf report -i /tmp/w/cost/$1.data --no-children --comm python --sort symbol -g none 2>/dev/null | grep -v '^#' | awk '{$1=$1};1' | cut -c1-150 | head -${5:-50}
